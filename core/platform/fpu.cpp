#include "platform/fpu.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace keel {

#if defined(__x86_64__)

// the bits that operations set (such as "inexact"); these bits are a status, not a mode
constexpr uint32_t sticky_flags = 0x3f;

uint32_t fpu_mode() noexcept { return _mm_getcsr() & ~sticky_flags; }
void set_fpu_mode(uint32_t mode) noexcept {
    _mm_setcsr((_mm_getcsr() & sticky_flags) | (mode & ~sticky_flags));
}

#elif defined(__aarch64__)

uint32_t fpu_mode() noexcept {
    uint64_t value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return static_cast<uint32_t>(value);
}
void set_fpu_mode(uint32_t mode) noexcept {
    asm volatile("msr fpcr, %0" ::"r"(static_cast<uint64_t>(mode)));
}

#else

uint32_t fpu_mode() noexcept { return 0; }
void set_fpu_mode(uint32_t) noexcept {}

#endif

} // namespace keel
