// The tile registers of AMX, or their emulation in the test build: eight tiles of at most 16 rows
// of 64 bytes. A tile number must be a literal, because it is part of the instruction. A thread may
// use tiles between tiles_configure() and tiles_release(). During this time, no other code of this
// plugin runs on the thread.
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
// Loads a tile with data that is used only once. So this data does not evict other data, which is
// used again, from the L1 cache. With this instruction, loading from the L2 cache is a quarter
// faster.
#define KEEL_TILE_LOAD_PASSING(t, p, stride) _tile_stream_loadd(t, p, stride)
#define KEEL_TILE_STORE(t, p, stride) _tile_stored(t, p, stride)
#define KEEL_TILE_DOT_BF16(c, a, b) _tile_dpbf16ps(c, a, b) // c += a * b; b holds pairs of rows
// The tile loads and stores of GCC 12 do not declare that they access memory. This fence keeps the
// compiler from moving other accesses past them.
#define KEEL_TILES_FENCE() __asm__ volatile("" ::: "memory")

#endif

namespace keel_cpu {

// The operand of the instruction LDTILECFG.
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
    // Without this line, GCC 12 can remove the stores to `config`.
    __asm__ volatile("" ::"r"(&config) : "memory");
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
