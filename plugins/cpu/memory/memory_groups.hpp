// Memory limits that Linux control groups set for containers and services.
#pragma once

#include <stdint.h>

namespace keel_cpu {

// Lowers `total` and `available`, in bytes, to the memory limits of this process's control groups
// (version 1 or 2). Each group from the process's own up to the root can have a limit. Cached file
// pages that a group can release count as available, because they can hold a model file that was
// just read. `self_cgroup` is "/proc/self/cgroup" and `mount` is "/sys/fs/cgroup", except in tests.
// A file that cannot be read sets no limit.
void limit_to_groups(const char *self_cgroup, const char *mount, uint64_t &total,
                     uint64_t &available) noexcept;

} // namespace keel_cpu
