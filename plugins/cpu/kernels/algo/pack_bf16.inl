// Rounding of x and unpacking of W for bf16 products. The file that includes this one must define
// `depth`: the number of columns unpacked at a time, a multiple of the K types' blocks.
#include "cpu/kernels/tables.hpp"
#include "cpu/kernels/algo/matmul_task.inl"
#include "cpu/kernels/algo/pack_k.inl"

namespace keel_cpu::KEEL_ISA_NAMESPACE {

// elements from one panel of 16 rows to the next panel
constexpr int64_t panel_stride = 16 * depth;
static_assert(depth % 256 == 0);

static void pack_x(const float *x, int64_t k, int64_t together, uint16_t *out) {
    int64_t i = 0;
    for (; i + 32 <= k; i += 32, out += together * 32)
        store_row(out, load(x + i), load(x + i + 16));
    if (i == k) return;
    float rest[32] = {};
    memcpy(rest, x + i, static_cast<size_t>(k - i) * 4);
    store_row(out, load(rest), load(rest + 16));
}

// Packs columns k0 .. k0 + k - 1 of rows n .. n + 15 of a row-major weight. If count < 16, the
// missing rows repeat row n; their products are not used.
template <WeightType T>
static void pack_rows(const WeightView &w, int64_t n, int64_t count, int64_t k0, int64_t k,
                      uint16_t *out) {
    const uint8_t *row[16], *copy[16];
    for (int64_t r = 0; r < 16; ++r)
        row[r] = row_of(w, n + (r < count ? r : 0)) + 2 * k0;
    int64_t i = 0;
    for (; i + 32 <= k; i += 32, out += tile_elements)
        pack_tile<T>(row, 2 * i, out);
    if (i == k) return;
    uint8_t rest[16][64] = {};
    for (int64_t r = 0; r < 16; ++r) {
        memcpy(rest[r], row[r] + 2 * i, static_cast<size_t>(k - i) * 2);
        copy[r] = rest[r];
    }
    pack_tile<T>(copy, 0, out);
}

// Packs columns k0 .. k0 + k - 1 of a group of interleaved rows.
template <bool Q4>
static void pack_group(const MatmulTask &t, int64_t g, int64_t k0, int64_t k, uint16_t *out) {
    static_assert(R == 16);
    constexpr int64_t data = (Q4 ? 16 : 32) * R, block = 2 * R + data;
    const uint8_t *p = t.w.packed + g * t.w.group_bytes + k0 / 32 * block;
    for (int64_t b = 0; b < k / 32; ++b, p += block, out += tile_elements) {
        for (int64_t line = 0; t.prefetch && line < block; line += 64)
            prefetch(p + 1024 + line);
        const F d = load_f16(reinterpret_cast<const uint16_t *>(p));
        for (int piece = 0; piece < (Q4 ? 4 : 8); ++piece) {
            const I bytes = load_bytes(p + 2 * R + piece * 4 * R);
            uint16_t *to = out + 2 * piece * 32;
            KEEL_UNROLL
            for (int pair = 0; pair < 2; ++pair)
                if constexpr (Q4) {
                    store_pairs(to + pair * 32, mul(d, nibble_at(bytes, 16 * pair)),
                                mul(d, nibble_at(bytes, 16 * pair + 8)));
                    store_pairs(to + (8 + pair) * 32, mul(d, nibble_at(bytes, 16 * pair + 4)),
                                mul(d, nibble_at(bytes, 16 * pair + 12)));
                } else {
                    store_pairs(to + pair * 32, mul(d, extract_byte_f32(bytes, 2 * pair)),
                                mul(d, extract_byte_f32(bytes, 2 * pair + 1)));
                }
        }
    }
}

// Packs a panel. Row-major weights are read as 16 streams, without software prefetch.
static void pack_panel(const MatmulTask &t, int64_t n, int64_t count, int64_t k0, int64_t k,
                       uint16_t *out) {
    switch (t.w.type) {
    case WeightType::f16:
        return pack_rows<WeightType::f16>(t.w, n, count, k0, k, out);
    case WeightType::bf16:
        return pack_rows<WeightType::bf16>(t.w, n, count, k0, k, out);
    case WeightType::q8_0:
        return pack_group<false>(t, n / R, k0, k, out);
    case WeightType::q4_0:
        return pack_group<true>(t, n / R, k0, k, out);
    case WeightType::q4_k:
        return pack_k_group<WeightType::q4_k>(t, n / R, k0, k, out);
    case WeightType::q5_k:
        return pack_k_group<WeightType::q5_k>(t, n / R, k0, k, out);
    case WeightType::q6_k:
        return pack_k_group<WeightType::q6_k>(t, n / R, k0, k, out);
    default:  // least_rows is 0 for all other types
        return;
    }
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE
