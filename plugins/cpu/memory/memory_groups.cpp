#include "cpu/memory/memory_groups.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace keel_cpu {
namespace {

struct Files {
    const char *limits[2], *used; // limits[1] is nullptr if there is only one limit file
    // how the line with the size of the unused file cache begins in memory.stat
    const char *idle_cache;
};
constexpr Files version_2 = {{"memory.max", "memory.high"}, "memory.current", "\ninactive_file "};
constexpr Files version_1 = {
    {"memory.limit_in_bytes", nullptr}, "memory.usage_in_bytes", "\ntotal_inactive_file "};

// longest path, and longest text that is read from a file, in bytes
constexpr size_t longest = 4096;
using Text = char[longest];

// Reads the start of a file. A newline is put before the text, so that each line follows a newline.
// Returns false if the file is missing or empty.
bool read_text(const char *path, Text &text) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    text[0] = '\n';
    size_t n = 1;
    while (n < longest - 1) {
        const ssize_t got = read(fd, text + n, longest - 1 - n);
        if (got <= 0) break;
        n += static_cast<size_t>(got);
    }
    close(fd);
    text[n] = 0;
    return n > 1;
}

// Reads a number. Returns false for "max" and for text that is not a number.
bool parse(const char *at, uint64_t &value) {
    if (*at < '0' || *at > '9') return false;
    value = strtoull(at, nullptr, 10);
    return true;
}

bool read_number(const char *group, const char *file, uint64_t &value) {
    Text path, text;
    const int n = snprintf(path, sizeof path, "%s/%s", group, file);
    return n > 0 && static_cast<size_t>(n) < sizeof path && read_text(path, text) &&
           parse(text + 1, value);
}

void apply(const char *group, const Files &files, uint64_t &total, uint64_t &available) {
    uint64_t limit = UINT64_MAX, value;
    for (const char *file : files.limits)
        if (file != nullptr && read_number(group, file, value) && value < limit) limit = value;
    if (limit == UINT64_MAX) return;
    uint64_t used = 0, idle = 0;
    read_number(group, files.used, used);
    Text path, text;
    const int n = snprintf(path, sizeof path, "%s/memory.stat", group);
    if (n > 0 && static_cast<size_t>(n) < sizeof path && read_text(path, text)) {
        const char *line = strstr(text, files.idle_cache);
        if (line != nullptr) parse(line + strlen(files.idle_cache), idle);
    }
    used -= idle < used ? idle : used;
    const uint64_t left = limit > used ? limit - used : 0;
    if (limit < total) total = limit;
    if (left < available) available = left;
}

// Applies the limits of the control group `path` below `mount`, and of all groups above it. In a
// container `path` may not exist; then `mount` itself is the group.
void apply_upwards(const char *mount, const char *path, size_t length, const Files &files,
                   uint64_t &total, uint64_t &available) {
    Text group;
    const int n = snprintf(group, sizeof group, "%s%.*s", mount, static_cast<int>(length), path);
    if (n <= 0 || static_cast<size_t>(n) >= sizeof group)
        return apply(mount, files, total, available);
    const size_t top = strlen(mount);
    for (size_t end = static_cast<size_t>(n);;) {
        while (end > top && group[end - 1] == '/') --end;
        group[end] = 0;
        apply(group, files, total, available);
        if (end <= top) return;
        while (end > top && group[end - 1] != '/') --end;
    }
}

} // namespace

void limit_to_groups(const char *self_cgroup, const char *mount, uint64_t &total,
                     uint64_t &available) noexcept {
    Text groups, at;
    if (!read_text(self_cgroup, groups)) return;
    // A line looks like "0::/path" (version 2) or "4:memory:/path" (version 1).
    for (const char *line = groups + 1; *line != 0;) {
        const size_t length = strcspn(line, "\n");
        const char *first = static_cast<const char *>(memchr(line, ':', length));
        const char *second =
            first == nullptr ? nullptr
                             : static_cast<const char *>(memchr(
                                   first + 1, ':', static_cast<size_t>(line + length - first - 1)));
        if (second != nullptr) {
            const char *path = second + 1;
            const size_t path_length = static_cast<size_t>(line + length - path);
            Text controllers;
            snprintf(controllers, sizeof controllers, ",%.*s,",
                     static_cast<int>(second - first - 1), first + 1);
            const bool unified = second == first + 1,
                       memory = strstr(controllers, ",memory,") != nullptr;
            // If both versions are mounted, version 2 has its own folder.
            snprintf(at, sizeof at, "%s/%s", mount, unified ? "unified" : "memory");
            const char *where = unified && access(at, F_OK) != 0 ? mount : at;
            if (unified || memory)
                apply_upwards(where, path, path_length, unified ? version_2 : version_1, total,
                              available);
        }
        line += length;
        if (*line == '\n') ++line;
    }
}

} // namespace keel_cpu
