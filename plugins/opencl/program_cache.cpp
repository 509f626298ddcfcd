#include "opencl/program_cache.hpp"

#include "gpu/cache_folder.hpp"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace keel_opencl {
namespace {

constexpr uint64_t most_bytes = uint64_t{64} << 20; // of a file

struct Header {
    char magic[8];
    uint64_t key, size, hash;
};
constexpr char magic[8] = {'K', 'E', 'E', 'L', 'C', 'L', '0', '1'};

uint64_t hash_bytes(const void *data, size_t n, uint64_t hash = 1469598103934665603ULL) {
    const auto *bytes = static_cast<const unsigned char *>(data);
    for (size_t i = 0; i < n; ++i)
        hash = (hash ^ bytes[i]) * 1099511628211ULL;
    return hash;
}

uint64_t hash_text(const std::string &text, uint64_t hash) {
    return hash_bytes(text.c_str(), text.size() + 1, hash); // the NUL keeps "ab","c" and "a","bc" apart
}

bool make_folders(const std::string &folder) {
    for (size_t slash = 1; slash != std::string::npos;) {
        slash = folder.find('/', slash);
        const std::string part = folder.substr(0, slash);
        struct stat facts;
        if (stat(part.c_str(), &facts) != 0 && mkdir(part.c_str(), 0700) != 0 &&
            stat(part.c_str(), &facts) != 0)
            return false;
        if (slash != std::string::npos) ++slash;
    }
    return true;
}

} // namespace

ProgramCache::ProgramCache(std::string folder, const DeviceFacts &device) : folder_(std::move(folder)) {
    device_hash_ = hash_text(device.name, 1469598103934665603ULL);
    device_hash_ = hash_text(device.vendor, device_hash_);
    device_hash_ = hash_text(device.driver, device_hash_);
}

ProgramCache::Key ProgramCache::key(const std::string &options, const char *first, const char *second) const {
    return hash_text(second, hash_text(first, hash_text(options, device_hash_)));
}

std::string ProgramCache::path(Key key) const {
    char name[32];
    snprintf(name, sizeof name, "/%016llx.bin", static_cast<unsigned long long>(key));
    return folder_ + name;
}

bool ProgramCache::is_safe() const {
    return keel_gpu::is_private_folder(folder_.c_str());
}

std::vector<unsigned char> ProgramCache::load(Key key) const {
    std::vector<unsigned char> data;
    if (!is_on() || !is_safe()) return data;
    FILE *file = fopen(path(key).c_str(), "rbe");
    if (file == nullptr) return data;
    Header header;
    struct stat facts;
    if (fread(&header, sizeof header, 1, file) == 1 && memcmp(header.magic, magic, sizeof magic) == 0 &&
        header.key == key && header.size <= most_bytes && fstat(fileno(file), &facts) == 0 &&
        static_cast<uint64_t>(facts.st_size) == sizeof header + header.size) {
        data.resize(header.size);
        if (fread(data.data(), 1, data.size(), file) != data.size() ||
            hash_bytes(data.data(), data.size()) != header.hash)
            data.clear();
    }
    fclose(file);
    return data;
}

void ProgramCache::store(Key key, const std::vector<unsigned char> &data) const {
    if (!is_on() || data.size() > most_bytes || !make_folders(folder_) || !is_safe()) return;
    const std::string beside = path(key) + "." + std::to_string(getpid()) + "." +
                               std::to_string(reinterpret_cast<uintptr_t>(this)); // nobody else's
    FILE *file = fopen(beside.c_str(), "wbxe");
    if (file == nullptr) return;
    Header header = {{}, key, data.size(), hash_bytes(data.data(), data.size())};
    memcpy(header.magic, magic, sizeof magic);
    bool whole = fwrite(&header, sizeof header, 1, file) == 1 &&
                 fwrite(data.data(), 1, data.size(), file) == data.size();
    whole = fclose(file) == 0 && whole;
    if (!whole || rename(beside.c_str(), path(key).c_str()) != 0) unlink(beside.c_str());
}

std::string cache_folder(const char *word) {
    if (keel_same(word, "off")) return {};
    if (word[0] != 0 && !keel_same(word, "auto")) return word;
    const char *cache = getenv("XDG_CACHE_HOME");
    if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/keel/opencl";
    const char *home = getenv("HOME");
    return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/keel/opencl" : std::string{};
}

} // namespace keel_opencl
