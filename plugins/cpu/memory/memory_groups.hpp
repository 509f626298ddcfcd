// What a container, or a service with a limit, leaves of the system's memory.
#pragma once

#include <stdint.h>

namespace keel_cpu {

// Lowers `total` and `available`, in bytes, to what the control groups of this process allow: each
// group from its own to the root may hold a limit. Pages of files that a group gives back on demand
// count as free: a model that was just read lies there. `self_cgroup` is /proc/self/cgroup and
// `mount` /sys/fs/cgroup, but in tests; versions 1 and 2. What cannot be read limits nothing.
void limit_to_groups(const char *self_cgroup, const char *mount, uint64_t &total,
                     uint64_t &available) noexcept;

} // namespace keel_cpu
