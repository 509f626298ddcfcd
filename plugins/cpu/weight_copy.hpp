// 16-bit weights in memory of their own.
#pragma once

#include "context.hpp"

namespace keel_cpu {

// Copies the rows of `w`, which lie in a mapped file, into large pages where the context wants that and there is room for it; w->view reads
// the copy then. KEEL_OK too where nothing was copied: the file's rows do as well, but slower.
keel_status copy_rows(keel_ctx *ctx, keel_weight *w) noexcept;

} // namespace keel_cpu
