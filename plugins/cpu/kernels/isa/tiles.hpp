// The tile registers of AMX, or in the test build their emulation: eight of at most 16 rows of 64
// bytes. Tiles are named by literals: they are part of the instruction. Between tiles_configure()
// and tiles_release() a thread uses them; nothing else of this plugin runs on it meanwhile.
#pragma once

#include <stdint.h>

#if defined(KEEL_CPU_EMULATED_AVX512)

#include "cpu/kernels/isa/tiles_emulated.hpp"
#define KEEL_TILE_ZERO(t) ::keel_cpu::tiles_emulated::zero(t)
#define KEEL_TILE_LOAD(t, p, stride) ::keel_cpu::tiles_emulated::load(t, p, stride)
#define KEEL_TILE_LOAD_PASSING(t, p, stride) ::keel_cpu::tiles_emulated::load(t, p, stride)
#define KEEL_TILE_STORE(t, p, stride) ::keel_cpu::tiles_emulated::store(t, p, stride)
#define KEEL_TILE_DOT_BF16(c, a, b) ::keel_cpu::tiles_emulated::dot_bf16(c, a, b)
#define KEEL_TILES_FENCE()

#else

#include <immintrin.h>
#define KEEL_TILE_ZERO(t) _tile_zero(t)
#define KEEL_TILE_LOAD(t, p, stride) _tile_loadd(t, p, stride)
// What passes by once does not drive from the first cache what is read again and again: a quarter
// faster where it comes from the second.
#define KEEL_TILE_LOAD_PASSING(t, p, stride) _tile_stream_loadd(t, p, stride)
#define KEEL_TILE_STORE(t, p, stride) _tile_stored(t, p, stride)
#define KEEL_TILE_DOT_BF16(c, a, b) _tile_dpbf16ps(c, a, b) // c += a * b, b in pairs of rows
// GCC 12's loads and stores of tiles do not say that they touch memory: nothing may be moved past
// these.
#define KEEL_TILES_FENCE() __asm__ volatile("" ::: "memory")

#endif

namespace keel_cpu {

// What LDTILECFG reads.
struct alignas(64) TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

static inline void tiles_configure(const TileConfig &config) {
#if defined(KEEL_CPU_EMULATED_AVX512)
    tiles_emulated::configure(&config);
#else
    __asm__ volatile("" ::"r"(&config) : "memory"); // GCC 12 may drop what was stored to it
    _tile_loadconfig(&config);
#endif
}

static inline void tiles_release() {
#if defined(KEEL_CPU_EMULATED_AVX512)
    tiles_emulated::configure(nullptr);
#else
    KEEL_TILES_FENCE();
    _tile_release();
#endif
}

} // namespace keel_cpu
