// 16-bit weights in memory of their own.
#pragma once

#include "context.hpp"

namespace keel_cpu {

// Copies the rows of `w`, which lie in a mapped file, into large pages where the context wants that and there is room for it; w->view reads
// the copy then. KEEL_OK too where nothing was copied: the file's rows do as well, but slower.
keel_status copy_rows(keel_ctx *ctx, keel_weight *w) noexcept;

// Whether of `total` bytes of memory, of which `available` are to be had, an eighth stays free beside a copy of `bytes`. A mapped file's pages
// can be given up when memory is short, a copy cannot.
inline bool leaves_an_eighth(uint64_t bytes, uint64_t total, uint64_t available) noexcept {
    return available >= total / 8 && available - total / 8 >= bytes;
}

} // namespace keel_cpu
