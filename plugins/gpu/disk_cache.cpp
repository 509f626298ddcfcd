#include "gpu/disk_cache.hpp"

#include <filesystem>
#include <fstream>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace keel_gpu {
namespace {

constexpr uint64_t most_bytes = uint64_t{256} << 20; // size limit of one file
constexpr char magic[8] = {'K', 'E', 'E', 'L', 'G', 'P', 'U', '1'};

struct Header {
    char magic[8];
    uint64_t key, bytes, sum;
};

constexpr uint64_t first_sum = 1469598103934665603u;

uint64_t sum_of(const void *data, size_t n, uint64_t sum = first_sum) noexcept {
    const auto *bytes = static_cast<const unsigned char *>(data);
    for (size_t i = 0; i < n; ++i) sum = (sum ^ bytes[i]) * 1099511628211u;
    return sum;
}

// Returns the reason why other users could use the folder, or NULL if only this user can.
const char *why_not_private(const struct stat &facts) noexcept {
    if (!S_ISDIR(facts.st_mode)) return "it is not a folder";
    if (facts.st_uid != geteuid()) return "it belongs to another user";
    return (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0 ? "others may write to it (chmod go-w)"
                                                      : nullptr;
}

bool is_private(const std::string &folder) noexcept {
    struct stat facts;
    return stat(folder.c_str(), &facts) == 0 && why_not_private(facts) == nullptr;
}

// Makes the folder and its parents. Only this user may use the last folder of the path. Returns
// false if the folder cannot be used.
bool make_folder(const std::string &folder) {
    std::error_code code;
    std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), code);
    ::mkdir(folder.c_str(), 0700);
    return is_private(folder);
}

} // namespace

DiskCache::Key DiskCache::key(std::initializer_list<std::string_view> parts) noexcept {
    uint64_t sum = first_sum;
    // The NUL after each part makes the parts "ab" and "c" different from "a" and "bc".
    for (const std::string_view part : parts)
        sum = sum_of("", 1, sum_of(part.data(), part.size(), sum));
    return sum;
}

std::string DiskCache::folder_of(const char *word, const char *backend) {
    if (strcmp(word, "off") == 0) return {};
    if (word[0] != 0 && strcmp(word, "auto") != 0) return word;
    const char *cache = getenv("XDG_CACHE_HOME");
    if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/keel/" + backend;
    const char *home = getenv("HOME");
    return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/keel/" + backend
                                             : std::string{};
}

std::string DiskCache::path(Key key) const {
    char name[32];
    snprintf(name, sizeof name, "/%016llx.bin", static_cast<unsigned long long>(key));
    return folder_ + name;
}

std::vector<uint8_t> DiskCache::load(Key key) const {
    if (!is_on() || !is_private(folder_)) return {};
    std::ifstream file(path(key), std::ios::binary);
    Header header;
    if (!file.read(reinterpret_cast<char *>(&header), sizeof header)) return {};
    if (memcmp(header.magic, magic, sizeof magic) != 0 || header.key != key ||
        header.bytes > most_bytes)
        return {};
    std::error_code code;
    if (std::filesystem::file_size(path(key), code) != header.bytes + sizeof header || code)
        return {};
    std::vector<uint8_t> data(header.bytes);
    if (!file.read(reinterpret_cast<char *>(data.data()),
                   static_cast<std::streamsize>(data.size())))
        return {};
    if (sum_of(data.data(), data.size()) != header.sum) return {};
    return data;
}

void DiskCache::store(Key key, const std::vector<uint8_t> &data) const noexcept {
    try {
        if (!is_on() || data.empty() || data.size() > most_bytes || !make_folder(folder_)) return;
        // The name is unique, because other processes can write at the same time.
        std::string part = path(key) + ".XXXXXX";
        const int fd = mkstemp(part.data());
        if (fd < 0) return;
        FILE *file = fdopen(fd, "wb");
        if (file == nullptr) {
            ::close(fd);
            ::unlink(part.c_str());
            return;
        }
        Header header = {{}, key, data.size(), sum_of(data.data(), data.size())};
        memcpy(header.magic, magic, sizeof magic);
        bool whole = fwrite(&header, sizeof header, 1, file) == 1 &&
                     fwrite(data.data(), data.size(), 1, file) == 1;
        whole = fclose(file) == 0 && whole;
        if (!whole || ::rename(part.c_str(), path(key).c_str()) != 0) ::unlink(part.c_str());
    } catch (...) { // if there is no memory, nothing is cached
    }
}

void warn_of_unused_folder(const keel_host *host, const char *word) noexcept {
    if (word[0] == 0 || strcmp(word, "auto") == 0 || strcmp(word, "off") == 0) return;
    struct stat facts;
    if (stat(word, &facts) != 0) return;
    const char *why = why_not_private(facts);
    if (why == nullptr || host == nullptr || !KEEL_HAS(host, keel_host, log)) return;
    char text[512];
    snprintf(text, sizeof text, "cache: compiled kernels are not kept in '%.300s': %s", word, why);
    host->log(host, KEEL_LOG_WARN, text);
}

} // namespace keel_gpu
