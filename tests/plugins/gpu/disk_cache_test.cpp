// Tests of the files of compiled kernels: damaged files are ignored.
#include "gpu/disk_cache.hpp"

#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/stat.h>

using keel_gpu::DiskCache;
namespace fs = std::filesystem;

namespace {

const std::vector<uint8_t> data = {1, 2, 3, 250, 0, 77};

fs::path only_file(const fs::path &folder) {
    std::vector<fs::path> all;
    for (const auto &entry : fs::directory_iterator(folder)) all.push_back(entry.path());
    REQUIRE(all.size() == 1); // no other file is left
    return all[0];
}

std::string bytes_of(const fs::path &file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

void put(const fs::path &file, const std::string &bytes) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

} // namespace

TEST_CASE("a file is loaded only with the key with which it was stored") {
    const keel::test::TempFolder folder;
    const std::string place = folder / "deep/down";
    const DiskCache cache(place);
    const DiskCache::Key key = DiskCache::key({"a device", "-D A=1", "source"});
    CHECK(cache.load(key).empty());
    cache.store(key, data);
    CHECK(cache.load(key) == data);
    struct stat facts;
    REQUIRE(stat(place.c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777) == 0700);
    CHECK(DiskCache::key({"a device", "-D A=2", "source"}) != key);
    CHECK(DiskCache::key({"a devic", "e-D A=1", "source"}) != key);
    CHECK(DiskCache::key({"a device", "-D A=1", "source", ""}) != key);
    CHECK(cache.load(DiskCache::key({"another", "-D A=1", "source"})).empty());
    const std::vector<uint8_t> other = {9};
    cache.store(key, other);
    CHECK(cache.load(key) == other);
}

TEST_CASE("a changed, truncated, extended or renamed file is not used") {
    const keel::test::TempFolder folder;
    const std::string place = folder / "cache";
    const DiskCache cache(place);
    const DiskCache::Key key = DiskCache::key({"a"});
    cache.store(key, data);
    const fs::path file = only_file(place);
    const std::string whole = bytes_of(file);
    for (size_t i = 0; i < whole.size(); ++i) {
        std::string damaged = whole;
        damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
        put(file, damaged);
        INFO(i);
        CHECK(cache.load(key).empty());
    }
    for (const size_t size : {size_t{0}, size_t{7}, whole.size() - 1}) {
        put(file, whole.substr(0, size));
        CHECK(cache.load(key).empty());
    }
    put(file, whole + "more");
    CHECK(cache.load(key).empty());
    put(file, whole);
    CHECK(cache.load(key) == data);
    const DiskCache::Key other = DiskCache::key({"b"}); // the file of another kernel has this name
    char name[32];
    snprintf(name, sizeof name, "%016llx.bin", static_cast<unsigned long long>(other));
    fs::copy_file(file, fs::path(place) / name);
    CHECK(cache.load(other).empty());
}

TEST_CASE("a folder with foreign write access, a file, and an impossible folder are not used") {
    const keel::test::TempFolder folder;
    const std::string place = folder / "cache";
    const DiskCache cache(place);
    const DiskCache::Key key = DiskCache::key({"a"});
    cache.store(key, data);
    chmod(place.c_str(), 0777);
    CHECK(cache.load(key).empty());
    chmod(place.c_str(), 0700);
    CHECK(cache.load(key) == data);
    put(folder / "file", "x");
    for (const char *bad : {"file", "file/below"}) {
        const DiskCache other(folder / bad);
        other.store(key, data);
        CHECK(other.load(key).empty());
    }
    const DiskCache off;
    CHECK_FALSE(off.is_on());
    off.store(key, data);
    CHECK(off.load(key).empty());
}

TEST_CASE("the value in a config selects the folder") {
    setenv("XDG_CACHE_HOME", "/x/cache", 1);
    CHECK(DiskCache::folder_of("auto", "opencl") == "/x/cache/keel/opencl");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/home/me", 1);
    CHECK(DiskCache::folder_of("auto", "vulkan") == "/home/me/.cache/keel/vulkan");
    CHECK(DiskCache::folder_of("", "vulkan") == "/home/me/.cache/keel/vulkan");
    CHECK(DiskCache::folder_of("off", "vulkan").empty());
    CHECK(DiskCache::folder_of("/else/where", "vulkan") == "/else/where");
    unsetenv("HOME");
    CHECK(DiskCache::folder_of("auto", "vulkan").empty());
}

TEST_CASE("the user gets the reason if a named folder is not used") {
    const keel::test::TempFolder folder;
    std::string said;
    keel_host host = {KEEL_HEADER(keel_host)};
    host.host_data = &said;
    host.log = [](const keel_host *h, keel_log_level level, const char *text) {
        CHECK(level == KEEL_LOG_WARN);
        static_cast<std::string *>(h->host_data)->append(text);
    };
    const std::string path = folder.path().string();
    chmod(path.c_str(), 0700);
    for (const std::string &fine :
         {path, path + "/not_there_yet", std::string("auto"), std::string("off")})
        keel_gpu::warn_of_unused_folder(&host, fine.c_str());
    CHECK(said.empty());
    chmod(path.c_str(), 0777);
    keel_gpu::warn_of_unused_folder(&host, path.c_str());
    CHECK(said.find(path) != std::string::npos);
    CHECK(said.find("others may write") != std::string::npos);
    chmod(path.c_str(), 0700);
}
