// Copies of 16-bit weights.
#pragma once

#include "cpu/context.hpp"
#include "cpu/memory/memory_groups.hpp"

namespace keel_cpu {

// If the context wants copies and there is room, copies the rows of `w` from the mapped file to
// large pages, and lets w->view read the copy. Also returns KEEL_OK if nothing was copied, because
// the file's rows can be used too, but slower.
keel_status copy_rows(keel_ctx *ctx, keel_weight *w) noexcept;

// Whether a copy of `bytes` leaves an eighth of `total` bytes of memory free, if `available` bytes
// are free now. When memory is short, the system can drop pages of a mapped file, but not of a
// copy.
inline bool leaves_an_eighth(uint64_t bytes, uint64_t total, uint64_t available) noexcept {
    return available >= total / 8 && available - total / 8 >= bytes;
}

// Whether `copy: auto` copies `bytes` more bytes. total, available: as system_memory() returns
// them. self_cgroup, mount: as in limit_to_groups().
enum class Room { enough, none, unknown };
inline Room room_for(uint64_t bytes, uint64_t total, uint64_t available, const char *self_cgroup,
                     const char *mount) noexcept {
    if (total == 0 || available == 0) return Room::unknown;
    limit_to_groups(self_cgroup, mount, total, available);
    return leaves_an_eighth(bytes, total, available) ? Room::enough : Room::none;
}

} // namespace keel_cpu
