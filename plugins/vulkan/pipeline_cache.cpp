#include "vulkan/pipeline_cache.hpp"

#include "gpu/cache_folder.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

namespace keel_vulkan {
namespace {

constexpr uint64_t kMostBytes = 256u << 20; // a file beyond this is none of ours
constexpr char kMagic[8] = {'k', 'e', 'e', 'l', 'v', 'k', 'p', '1'};

// What stands before the driver's data.
struct FileHeader {
    char magic[8];
    uint64_t bytes, sum;
};

uint64_t sum_of(const uint8_t *data, size_t n) {
    uint64_t sum = 1469598103934665603u;
    for (size_t i = 0; i < n; ++i)
        sum = (sum ^ data[i]) * 1099511628211u;
    return sum;
}

// Makes the folder, its last part for its owner alone.
bool make_folder(const std::filesystem::path &folder) {
    std::error_code code;
    std::filesystem::create_directories(folder.parent_path(), code);
    ::mkdir(folder.c_str(), 0700);
    return keel_gpu::is_private_folder(folder.c_str());
}

} // namespace

std::string pipeline_cache_path(const DeviceFacts &facts, const char *folder) {
    if (std::strcmp(folder, "off") == 0) return {};
    std::string path = folder;
    if (path.empty() || path == "auto") {
        const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
        if (cache != nullptr && cache[0] == '/')
            path = std::string(cache) + "/keel/vulkan";
        else if (home != nullptr && home[0] == '/')
            path = std::string(home) + "/.cache/keel/vulkan";
        else
            return {};
    }
    char name[96];
    int n = snprintf(name, sizeof name, "/%04x-%04x-%08x-", facts.properties.vendorID,
                     facts.properties.deviceID, facts.properties.driverVersion);
    for (const uint8_t byte : facts.pipeline_uuid)
        n += snprintf(name + n, sizeof name - static_cast<size_t>(n), "%02x", byte);
    return path + name + ".bin";
}

std::vector<uint8_t> read_pipeline_cache(const std::string &path, const DeviceFacts &facts) {
    if (!keel_gpu::is_private_folder(std::filesystem::path(path).parent_path().c_str())) return {};
    std::ifstream file(path, std::ios::binary);
    FileHeader header;
    if (!file.read(reinterpret_cast<char *>(&header), sizeof header)) return {};
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.bytes > kMostBytes) return {};
    std::error_code code;
    if (std::filesystem::file_size(path, code) != header.bytes + sizeof header || code) return {};
    std::vector<uint8_t> data(header.bytes);
    if (!file.read(reinterpret_cast<char *>(data.data()), static_cast<std::streamsize>(data.size())))
        return {};
    VkPipelineCacheHeaderVersionOne driver;
    if (sum_of(data.data(), data.size()) != header.sum || data.size() < sizeof driver) return {};
    std::memcpy(&driver, data.data(), sizeof driver);
    const VkPhysicalDeviceProperties &p = facts.properties;
    if (driver.headerSize < sizeof driver || driver.headerSize > data.size() ||
        driver.headerVersion != VK_PIPELINE_CACHE_HEADER_VERSION_ONE || driver.vendorID != p.vendorID ||
        driver.deviceID != p.deviceID ||
        std::memcmp(driver.pipelineCacheUUID, facts.pipeline_uuid, VK_UUID_SIZE) != 0)
        return {};
    return data;
}

void write_pipeline_cache(const std::string &path, const std::vector<uint8_t> &data) noexcept {
    try {
        if (data.empty() || data.size() > kMostBytes) return;
        if (!make_folder(std::filesystem::path(path).parent_path())) return;
        std::string part = path + ".XXXXXX"; // of our own, whoever else writes at the same time
        const int fd = mkstemp(part.data());
        if (fd < 0) return;
        FileHeader header;
        std::memcpy(header.magic, kMagic, sizeof kMagic);
        header.bytes = data.size();
        header.sum = sum_of(data.data(), data.size());
        FILE *file = fdopen(fd, "wb");
        if (file == nullptr) {
            ::close(fd);
            ::unlink(part.c_str());
            return;
        }
        bool whole =
            fwrite(&header, sizeof header, 1, file) == 1 && fwrite(data.data(), data.size(), 1, file) == 1;
        whole = fclose(file) == 0 && whole;
        if (!whole || ::rename(part.c_str(), path.c_str()) != 0) ::unlink(part.c_str());
    } catch (...) { // no memory: no cache
    }
}

} // namespace keel_vulkan
