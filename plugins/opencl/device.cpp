// Finds OpenCL devices. The list is empty if there is no platform, if the driver fails, or if the
// platforms have no devices.
#include "opencl/device.hpp"

#include "opencl/ops/ops.hpp"

#include <algorithm>
#include <filesystem>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace keel_opencl {
namespace {

template <class T> T ask(cl_device_id device, cl_device_info what, T otherwise) {
    T value{};
    return clGetDeviceInfo(device, what, sizeof value, &value, nullptr) == CL_SUCCESS ? value
                                                                                      : otherwise;
}

std::string text(cl_device_id device, cl_device_info what) {
    char room[1024] = {};
    if (clGetDeviceInfo(device, what, sizeof room - 1, room, nullptr) != CL_SUCCESS) return {};
    std::string out(room);
    while (!out.empty() && out.back() == ' ') out.pop_back();
    return out.substr(out.find_first_not_of(' ') == std::string::npos ? 0
                                                                      : out.find_first_not_of(' '));
}

std::string platform_version(cl_platform_id platform) {
    char room[512] = {};
    clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof room - 1, room, nullptr);
    return room;
}

DeviceFacts facts_of(cl_platform_id platform, cl_device_id device) {
    DeviceFacts f;
    f.platform = platform;
    f.device = device;
    f.type = ask<cl_device_type>(device, CL_DEVICE_TYPE, CL_DEVICE_TYPE_DEFAULT);
    f.name = text(device, CL_DEVICE_NAME);
    f.vendor = text(device, CL_DEVICE_VENDOR);
    f.driver = platform_version(platform) + ", driver " + text(device, CL_DRIVER_VERSION);
    f.unified = ask<cl_bool>(device, CL_DEVICE_HOST_UNIFIED_MEMORY, CL_FALSE) != CL_FALSE;
    f.exact_division = (ask<cl_device_fp_config>(device, CL_DEVICE_SINGLE_FP_CONFIG, 0) &
                        CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
    f.memory = ask<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE, 0);
    f.max_buffer = ask<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 0);
    f.local_memory =
        ask<cl_device_local_mem_type>(device, CL_DEVICE_LOCAL_MEM_TYPE, CL_NONE) == CL_NONE
            ? 0
            : ask<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE, 0);
    f.max_group = ask<size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, 1);
    const uint32_t align = ask<cl_uint>(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 1024) / 8;
    f.alignment = std::max<uint32_t>(64, align != 0 && (align & (align - 1)) == 0 ? align : 64);
    f.vector = std::max<cl_uint>(1, ask<cl_uint>(device, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, 1));
    f.units = std::max<cl_uint>(1, ask<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS, 1));
    return f;
}

// Returns a number for sorting. The device with the lowest number comes first.
int rank(const DeviceFacts &f) {
    if ((f.type & CL_DEVICE_TYPE_GPU) != 0) return f.unified ? 1 : 0;
    return f.is_cpu() ? 3 : 2;
}

// Returns true if the device's version is below 1.2 (for example "OpenCL 1.1 ..."). Such a device
// does not have all functions that this backend calls.
bool is_old(cl_device_id device) {
    int major = 0, minor = 0;
    return sscanf(text(device, CL_DEVICE_VERSION).c_str(), "OpenCL %d.%d", &major, &minor) == 2 &&
           (major < 1 || (major == 1 && minor < 2));
}

bool usable(cl_device_id device) {
    return !is_old(device) && ask<cl_bool>(device, CL_DEVICE_AVAILABLE, CL_FALSE) != CL_FALSE &&
           ask<cl_bool>(device, CL_DEVICE_COMPILER_AVAILABLE, CL_FALSE) != CL_FALSE &&
           ask<cl_bool>(device, CL_DEVICE_ENDIAN_LITTLE, CL_FALSE) != CL_FALSE;
}

} // namespace

std::vector<DeviceFacts> list_devices() {
    cl_uint n = 0;
    std::vector<DeviceFacts> found;
    if (clGetPlatformIDs(0, nullptr, &n) != CL_SUCCESS || n == 0) return found;
    std::vector<cl_platform_id> platforms(n);
    if (clGetPlatformIDs(n, platforms.data(), &n) != CL_SUCCESS) return found;
    for (cl_platform_id platform : platforms) {
        cl_uint count = 0;
        if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS ||
            count == 0)
            continue;
        std::vector<cl_device_id> devices(count);
        if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), &count) !=
            CL_SUCCESS)
            continue;
        for (cl_device_id device : devices)
            if (usable(device)) found.push_back(facts_of(platform, device));
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const DeviceFacts &a, const DeviceFacts &b) { return rank(a) < rank(b); });
    return found;
}

namespace {

// Returns the folder of PoCL's kernel cache. Without this folder, PoCL offers no device.
std::filesystem::path pocl_cache() {
    const auto set = [](const char *name) {
        const char *text = getenv(name);
        return text != nullptr && *text != 0 ? text : nullptr;
    };
    if (const char *own = set("POCL_CACHE_DIR")) return own;
    if (const char *caches = set("XDG_CACHE_HOME"))
        return std::filesystem::path(caches) / "pocl/kcache";
    if (const char *home = set("HOME")) return std::filesystem::path(home) / ".cache/pocl/kcache";
    return "/tmp/pocl/kcache";
}

// Returns true if the folder is writable, or does not exist but can be created.
bool is_writable(std::filesystem::path folder) {
    std::error_code error;
    while (!std::filesystem::exists(folder, error) && folder.has_relative_path())
        folder = folder.parent_path();
    return std::filesystem::is_directory(folder, error) && access(folder.c_str(), W_OK | X_OK) == 0;
}

bool has_pocl() {
    cl_platform_id platforms[16];
    cl_uint n = 0;
    if (clGetPlatformIDs(16, platforms, &n) != CL_SUCCESS) return false;
    return std::any_of(
        platforms, platforms + std::min<cl_uint>(n, 16), [](cl_platform_id platform) {
            char name[128] = {};
            clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name - 1, name, nullptr);
            return strstr(name, "Portable Computing Language") != nullptr;
        });
}

} // namespace

keel_status KEEL_CALL device_count(const keel_host *host, uint32_t *n) noexcept {
    *n = 0;
    return guarded(host, [&] {
        *n = static_cast<uint32_t>(list_devices().size());
        if (*n != 0 || !has_pocl()) return;
        const std::filesystem::path cache = pocl_cache();
        if (is_writable(cache)) return;
        keel_gpu::fail(host, KEEL_E_NOT_FOUND,
                       "PoCL is installed, but cannot write its cache in '%.300s'; make this "
                       "folder writable, or set POCL_CACHE_DIR to a writable folder",
                       cache.c_str());
    });
}

keel_status KEEL_CALL device_info(const keel_host *host, uint32_t index,
                                  keel_device_info *out) noexcept {
    return guarded(host, [&] {
        const std::vector<DeviceFacts> devices = list_devices();
        if (index >= devices.size())
            refuse(host, KEEL_E_NOT_FOUND,
                   "device %u does not exist: OpenCL finds %zu device(s) on this machine", index,
                   devices.size());
        const DeviceFacts &f = devices[index];
        keel_device_info info = make_out<keel_device_info>();
        snprintf(info.name, sizeof info.name, "%s", f.name.c_str());
        snprintf(info.vendor, sizeof info.vendor, "%s", f.vendor.c_str());
        snprintf(info.driver, sizeof info.driver, "%s", f.driver.c_str());
        info.type = f.is_cpu()                           ? KEEL_DEVICE_CPU
                    : (f.type & CL_DEVICE_TYPE_GPU) == 0 ? KEEL_DEVICE_OTHER
                    : f.unified                          ? KEEL_DEVICE_INTEGRATED
                                                         : KEEL_DEVICE_DISCRETE;
        info.flags = f.unified ? KEEL_DEVICE_UNIFIED | KEEL_DEVICE_IMPORTS_HOST : 0;
        info.total_bytes = f.memory;
        keel_emit(out, &info, sizeof info);
    });
}

} // namespace keel_opencl
