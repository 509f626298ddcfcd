#include "platform/memory.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace keel {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t huge_page = uint64_t{2} << 20;

// Reads a file that has one number, such as memory.current. Returns nullopt for "max" and for any
// other text.
std::optional<uint64_t> read_number(const fs::path &path) {
    std::ifstream in(path);
    uint64_t value = 0;
    if (in >> value) return value;
    return std::nullopt;
}

// Returns the number after `key` in a file of "key value" or "Key:   value kB" lines.
std::optional<uint64_t> read_field(const fs::path &path, std::string_view key) {
    std::ifstream in(path);
    std::string line;
    while (std::getline(in, line)) {
        if (line.compare(0, key.size(), key) != 0) continue;
        const char *at = line.c_str() + key.size();
        char *end = nullptr;
        const uint64_t value = std::strtoull(at, &end, 10);
        if (end == at) return std::nullopt;
        return std::string_view(end) == " kB" ? value * 1024 : value;
    }
    return std::nullopt;
}

// The names of the files of a control group.
struct GroupFiles {
    std::vector<const char *> limits;
    const char *used;
    const char *idle_cache; // key in memory.stat: pages that count as used but are freed on demand
};
const GroupFiles version_2 = {{"memory.max", "memory.high"}, "memory.current", "inactive_file "};
const GroupFiles version_1 = {
    {"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file "};

// Returns all groups from the leaf to the root, because each group can have a limit. Inside a
// container, the folder `path` can be missing below the mount. Then the root of the mount is the
// container's group.
std::vector<fs::path> up_to_root(const fs::path &mount, const std::string &path) {
    std::vector<fs::path> groups;
    for (fs::path group = fs::path(path).lexically_normal();; group = group.parent_path()) {
        groups.push_back(group.empty() ? mount : mount / group);
        if (group.empty() || group == group.parent_path()) break;
    }
    return groups;
}

struct Groups {
    // groups of version 2, leaf first; a system with both versions has them in a subfolder
    std::vector<fs::path> unified;
    std::vector<fs::path> memory; // groups of version 1, if version 1 has the memory controller
};

// Parses lines such as "0::/path" (version 2) and "4:memory:/path" (version 1).
Groups find_groups(const fs::path &proc, const fs::path &cgroup) {
    Groups groups;
    std::ifstream in(proc / "self" / "cgroup");
    std::string line;
    while (std::getline(in, line)) {
        const size_t first = line.find(':'), second = line.find(":/", first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers =
            fmt::format(",{},", line.substr(first + 1, second - first - 1));
        const std::string path = line.substr(second + 2);
        if (controllers == ",,") {
            std::error_code error;
            const bool hybrid = fs::is_directory(cgroup / "unified", error);
            groups.unified = up_to_root(hybrid ? cgroup / "unified" : cgroup, path);
        } else if (controllers.find(",memory,") != std::string::npos) {
            groups.memory = up_to_root(cgroup / "memory", path);
        }
    }
    return groups;
}

// Lowers `info` to the limits of one group.
void apply_group(MemoryInfo &info, const fs::path &group, const GroupFiles &files) {
    uint64_t limit = std::numeric_limits<uint64_t>::max();
    for (const char *file : files.limits) {
        if (const auto value = read_number(group / file)) limit = std::min(limit, *value);
    }
    if (limit >= info.total && limit >= info.available) return;
    const uint64_t current = read_number(group / files.used).value_or(0);
    const uint64_t cache =
        std::min(current, read_field(group / "memory.stat", files.idle_cache).value_or(0));
    const uint64_t used = current - cache;
    const uint64_t free = limit > used ? limit - used : 0;
    info.total = std::min(info.total, limit);
    if (free < info.available) {
        info.available = free;
        info.limited_by = group.string();
    }
}

} // namespace

uint64_t page_size() noexcept {
    static const uint64_t size = [] {
        const long value = ::sysconf(_SC_PAGESIZE);
        return value > 0 ? static_cast<uint64_t>(value) : uint64_t{4096};
    }();
    return size;
}

void PageBuffer::Free::operator()(std::byte *p) const noexcept { std::free(p); }

PageBuffer::PageBuffer(uint64_t bytes, std::string_view what) {
    if (bytes == 0) return;
    const bool huge = bytes >= 2 * huge_page;
    const uint64_t alignment = huge ? std::max(huge_page, page_size()) : page_size();
    void *block = nullptr;
    const bool fits = bytes <= std::numeric_limits<size_t>::max() / 2;
    if (!fits ||
        ::posix_memalign(&block, static_cast<size_t>(alignment), static_cast<size_t>(bytes)) != 0) {
        throw_error(ErrorKind::resource, "{}: the system refused {} of memory", what,
                    format_bytes(bytes));
    }
    // Asks for huge pages. Without huge pages, address translation makes the reading of large
    // weights slow. A refusal is ignored.
    if (huge) ::madvise(block, static_cast<size_t>(bytes / huge_page * huge_page), MADV_HUGEPAGE);
    data_.reset(static_cast<std::byte *>(block));
    size_ = static_cast<size_t>(bytes);
}

uint64_t resident_bytes() noexcept {
    try {
        std::ifstream in("/proc/self/statm");
        uint64_t size = 0;
        uint64_t resident = 0;
        if (in >> size >> resident) return resident * page_size();
    } catch (...) { // a failed read is not an error
    }
    return 0;
}

uint64_t peak_resident_bytes() noexcept {
    struct rusage usage {};
    if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

MemoryInfo memory_info(const fs::path &proc, const fs::path &cgroup) {
    MemoryInfo info;
    const auto total = read_field(proc / "meminfo", "MemTotal:");
    if (!total) return info;
    info.total = *total;
    info.available =
        std::min(*total, read_field(proc / "meminfo", "MemAvailable:").value_or(*total));
    info.limited_by = "system memory";
    const Groups groups = find_groups(proc, cgroup);
    for (const fs::path &group : groups.unified) apply_group(info, group, version_2);
    for (const fs::path &group : groups.memory) apply_group(info, group, version_1);
    return info;
}

std::vector<fs::path> memory_groups(const fs::path &proc, const fs::path &cgroup) {
    return find_groups(proc, cgroup).unified;
}

void require_memory(uint64_t bytes, std::string_view what, std::string_view cure,
                    const MemoryInfo &info) {
    if (info.total == 0 || bytes <= info.available) return;
    throw_error(ErrorKind::resource, "{}: needs {} of memory, {} is available ({}); {}", what,
                format_bytes(bytes), format_bytes(info.available), info.limited_by, cure);
}

} // namespace keel
