#pragma once

#include <cstdint>

namespace keel {

// The rounding, flush and trap modes of this thread: the control bits of MXCSR (x86-64) or FPCR
// (AArch64); 0 on other machines. Loading a library that was linked with -ffast-math changes them
// silently.
uint32_t fpu_mode() noexcept;
void set_fpu_mode(uint32_t mode) noexcept;

} // namespace keel
