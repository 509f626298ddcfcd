// Copies of 16-bit weights in memory with large pages.
#pragma once

#include "cpu/context.hpp"
#include "cpu/memory/memory_groups.hpp"

namespace keel_cpu {

// Copies the rows of `w` from the mapped file to large pages, if the parameter `copy` requests
// copies and there is enough memory. w->view then reads the copy. If nothing was copied, also
// returns KEEL_OK, because the rows in the file can be used too. They are only slower.
keel_status copy_rows(keel_ctx *ctx, keel_weight *w) noexcept;

// Returns true if a copy of `bytes` bytes leaves at least an eighth of the `total` bytes of memory
// free. `available` bytes are free now. If memory is short, the system can drop pages of a mapped
// file, but not pages of a copy. So an eighth must stay free.
inline bool leaves_an_eighth(uint64_t bytes, uint64_t total, uint64_t available) noexcept {
    return available >= total / 8 && available - total / 8 >= bytes;
}

// The answer to the question whether there is enough memory for `copy: auto` to copy another
// `bytes` bytes. `total` and `available` have the meaning of system_memory(). `self_cgroup` and
// `mount` have the meaning of limit_to_groups().
enum class Room { enough, none, unknown };
inline Room room_for(uint64_t bytes, uint64_t total, uint64_t available, const char *self_cgroup,
                     const char *mount) noexcept {
    if (total == 0 || available == 0) return Room::unknown;
    limit_to_groups(self_cgroup, mount, total, available);
    return leaves_an_eighth(bytes, total, available) ? Room::enough : Room::none;
}

} // namespace keel_cpu
