// 16-bit weights in memory of their own.
#pragma once

#include "cpu/context.hpp"
#include "cpu/memory/memory_groups.hpp"

namespace keel_cpu {

// Copies the rows of `w`, which lie in a mapped file, into large pages where the context wants that
// and there is room for it; w->view reads the copy then. KEEL_OK too where nothing was copied: the
// file's rows do as well, but slower.
keel_status copy_rows(keel_ctx *ctx, keel_weight *w) noexcept;

// Whether of `total` bytes of memory, of which `available` are to be had, an eighth stays free
// beside a copy of `bytes`. A mapped file's pages can be given up when memory is short, a copy
// cannot.
inline bool leaves_an_eighth(uint64_t bytes, uint64_t total, uint64_t available) noexcept {
    return available >= total / 8 && available - total / 8 >= bytes;
}

// Whether `copy: auto` copies `bytes` more. total, available: of the system as system_memory has
// them; self_cgroup and mount as limit_to_groups takes them.
enum class Room { enough, none, unknown };
inline Room room_for(uint64_t bytes, uint64_t total, uint64_t available, const char *self_cgroup,
                     const char *mount) noexcept {
    if (total == 0 || available == 0) return Room::unknown;
    limit_to_groups(self_cgroup, mount, total, available);
    return leaves_an_eighth(bytes, total, available) ? Room::enough : Room::none;
}

} // namespace keel_cpu
