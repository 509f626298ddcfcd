// The file of compiled pipelines: what is wrong with it is passed over.
#include "vulkan/pipeline_cache.hpp"

#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

using namespace keel_vulkan;
namespace fs = std::filesystem;

namespace {

DeviceFacts device(uint32_t id = 7) {
    DeviceFacts facts = {};
    facts.properties.vendorID = 0x10005;
    facts.properties.deviceID = id;
    facts.properties.driverVersion = 22;
    for (uint8_t i = 0; i < VK_UUID_SIZE; ++i)
        facts.pipeline_uuid[i] = static_cast<uint8_t>(i + id);
    return facts;
}

// As a driver would give it.
std::vector<uint8_t> data_of(const DeviceFacts &facts) {
    VkPipelineCacheHeaderVersionOne header = {};
    header.headerSize = sizeof header;
    header.headerVersion = VK_PIPELINE_CACHE_HEADER_VERSION_ONE;
    header.vendorID = facts.properties.vendorID;
    header.deviceID = facts.properties.deviceID;
    std::memcpy(header.pipelineCacheUUID, facts.pipeline_uuid, VK_UUID_SIZE);
    std::vector<uint8_t> data(sizeof header + 100, 42);
    std::memcpy(data.data(), &header, sizeof header);
    return data;
}

std::string bytes_of(const fs::path &file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

void put(const fs::path &file, const std::string &bytes) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

} // namespace

TEST_CASE("a pipeline cache is read back as it was written, and leaves no other file") {
    const keel::test::TempFolder folder;
    const std::string path = pipeline_cache_path(device(), (folder / "deep/down").c_str());
    CHECK(read_pipeline_cache(path, device()).empty());
    write_pipeline_cache(path, data_of(device()));
    CHECK(read_pipeline_cache(path, device()) == data_of(device()));
    CHECK(std::distance(fs::directory_iterator(folder / "deep/down"), fs::directory_iterator()) == 1);
}

TEST_CASE("a pipeline cache of another device or driver is not used") {
    const keel::test::TempFolder folder;
    const std::string path = pipeline_cache_path(device(), folder.path().c_str());
    CHECK(pipeline_cache_path(device(8), folder.path().c_str()) != path);
    write_pipeline_cache(path, data_of(device(8)));
    CHECK(read_pipeline_cache(path, device()).empty());
}

TEST_CASE("a pipeline cache that was cut off or changed is not used") {
    const keel::test::TempFolder folder;
    const std::string path = pipeline_cache_path(device(), folder.path().c_str());
    write_pipeline_cache(path, data_of(device()));
    const std::string good = bytes_of(path);
    for (size_t n = 0; n < good.size(); n += 7) {
        put(path, good.substr(0, n));
        CHECK(read_pipeline_cache(path, device()).empty());
    }
    for (size_t i = 0; i < good.size(); i += 5) {
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ 0x20);
        put(path, bad);
        CHECK(read_pipeline_cache(path, device()).empty());
    }
    put(path, good + "x");
    CHECK(read_pipeline_cache(path, device()).empty());
    put(path, good);
    CHECK(read_pipeline_cache(path, device()) == data_of(device()));
}

TEST_CASE("a folder that others may write to is not used") {
    const keel::test::TempFolder folder;
    const std::string path = pipeline_cache_path(device(), (folder / "open").c_str());
    write_pipeline_cache(path, data_of(device()));
    CHECK_FALSE(read_pipeline_cache(path, device()).empty());
    fs::permissions(folder / "open", fs::perms::others_write, fs::perm_options::add);
    CHECK(read_pipeline_cache(path, device()).empty());
}

TEST_CASE("a folder that cannot be written, and 'off', only mean that there is no cache") {
    const keel::test::TempFolder folder;
    CHECK(pipeline_cache_path(device(), "off").empty());
    const fs::path file = folder.write("a_file", "");
    const std::string path = pipeline_cache_path(device(), (file / "below").c_str());
    write_pipeline_cache(path, data_of(device()));
    CHECK(read_pipeline_cache(path, device()).empty());
}
