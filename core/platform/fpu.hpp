#pragma once

#include <cstdint>

namespace keel {

// Returns the rounding, flush and trap modes of this thread: the control bits of MXCSR (x86-64) or
// FPCR (AArch64). Returns 0 on other machines. If a library was linked with -ffast-math, loading it
// changes these modes without a message.
uint32_t fpu_mode() noexcept;
void set_fpu_mode(uint32_t mode) noexcept;

} // namespace keel
