// Tests of the kernel cache with two kernels of the test: one compiles, the other does not.
#include "conformance/test_host.hpp"
#include "opencl/kernel_cache.hpp"
#include "support/driver_caches.hpp"
#include "support/skip.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

namespace keel_opencl {

const char *const types_text = "#define TWICE(x) (2 * (x))\n";
const SourceText source_texts[source_count] = {
    {"good.cl", "__kernel void good(__global int *x) { x[get_global_id(0)] = TWICE(N); }\n"},
    {"bad.cl", "__kernel void bad(__global int *x) { x[0] = no_such_name; }\n"},
};

} // namespace keel_opencl

using namespace keel_opencl;
namespace fs = std::filesystem;

namespace {

// The first device, with a queue. The constructor skips the case if there is no device.
struct Rig {
    keel::test::TestHost host;
    DeviceFacts device;
    Context context;
    Queue queue;

    Rig() {
        const std::vector<DeviceFacts> devices = list_devices();
        if (devices.empty()) keel::test::skip("no OpenCL device here");
        device = devices[0];
        cl_int code = CL_SUCCESS;
        context.reset(clCreateContext(nullptr, 1, &device.device, nullptr, nullptr, &code));
        REQUIRE(code == CL_SUCCESS);
        queue.reset(clCreateCommandQueue(context.get(), device.device, 0, &code));
        REQUIRE(code == CL_SUCCESS);
    }

    // Returns the number that the good kernel writes.
    int run(const std::string &folder, int n) {
        KernelCache kernels(host.table(), context.get(), device, folder);
        cl_kernel kernel = kernels.get(Source::linear, "good", {{"N", n}});
        CHECK(kernels.get(Source::linear, "good", {{"N", n}}) == kernel);
        cl_int code = CL_SUCCESS;
        Memory memory(clCreateBuffer(context.get(), CL_MEM_READ_WRITE, 4, nullptr, &code));
        const cl_mem handle = memory.get();
        const size_t one = 1;
        int out = 0;
        REQUIRE(clSetKernelArg(kernel, 0, sizeof handle, &handle) == CL_SUCCESS);
        REQUIRE(clEnqueueNDRangeKernel(queue.get(), kernel, 1, nullptr, &one, &one, 0, nullptr,
                                       nullptr) == CL_SUCCESS);
        REQUIRE(clEnqueueReadBuffer(queue.get(), handle, CL_TRUE, 0, 4, &out, 0, nullptr,
                                    nullptr) == CL_SUCCESS);
        return out;
    }
};

} // namespace

TEST_CASE(
    "a kernel that does not compile is reported with the file, the device and the compiler's log") {
    Rig rig;
    KernelCache kernels(rig.host.table(), rig.context.get(), rig.device, "");
    keel_status status = KEEL_OK;
    try {
        kernels.get(Source::norm, "bad", {});
    } catch (const keel_gpu::Refusal &refusal) {
        status = refusal.status;
    }
    CHECK(status == KEEL_E_INTERNAL);
    const std::string error = rig.host.last_error();
    INFO(error);
    CHECK(error.find("bad.cl does not build") != std::string::npos);
    CHECK(error.find("no_such_name") != std::string::npos);
    CHECK(error.find(rig.device.name) != std::string::npos);
    CHECK(error.find('\n') == std::string::npos);
}

TEST_CASE("programs come from the cache, and a bad cache has no effect") {
    Rig rig;
    const keel::test::TempFolder folder;
    const std::string cache = folder / "cache";
    CHECK(rig.run(cache, 21) == 42);
    CHECK(rig.run(cache, 21) == 42);
    CHECK(rig.run(cache, 4) == 8);
    size_t files = 0;
    for (const auto &entry : fs::directory_iterator(cache)) {
        ++files;
        std::ofstream(entry.path(), std::ios::binary | std::ios::trunc) << "rubbish";
    }
    CHECK(files == 2);
    CHECK(rig.run(cache, 21) == 42);
    CHECK(rig.run("", 21) == 42);
    CHECK(rig.run("/proc/no/such/folder", 21) == 42);
    // The file is valid, but the driver does not accept its content as a binary.
    const keel_gpu::DiskCache foreign(cache);
    std::string options = "-cl-std=CL1.2";
    if (rig.device.exact_division) options += " -cl-fp32-correctly-rounded-divide-sqrt";
    const keel_gpu::DiskCache::Key key =
        keel_gpu::DiskCache::key({rig.device.name, rig.device.vendor, rig.device.driver,
                                  options + " -D N=21", types_text, source_texts[0].text});
    CHECK_FALSE(foreign.load(key).empty()); // the file that the cache itself wrote
    foreign.store(key, {1, 2, 3, 4});
    CHECK(rig.run(cache, 21) == 42);
}
