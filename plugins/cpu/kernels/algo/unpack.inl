// Converts weights of any type and layout to f32: whole rows for the op embed, panels for
// matmul_any_f32.
namespace keel_cpu::KEEL_ISA_NAMESPACE {

KEEL_SIMD float read_f16(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, 2);
    return f16_to_f32(h);
}

// Converts elements i .. i + n - 1 of a row in GGML's block layout to f32. i and n are multiples of
// 32.
template <bool Q4>
KEEL_SIMD void unpack_blocks(const uint8_t *row, int64_t i, int64_t n, float *out, int64_t stride) {
    constexpr int64_t bytes = Q4 ? 18 : 34;
    for (int64_t b = i / 32; b < (i + n) / 32; ++b, out += 32 * stride) {
        const uint8_t *p = row + b * bytes;
        const float d = read_f16(p);
        for (int j = 0; j < (Q4 ? 16 : 32); ++j) {
            if constexpr (Q4) {
                out[j * stride] = d * static_cast<float>((p[2 + j] & 15) - 8);
                out[(j + 16) * stride] = d * static_cast<float>((p[2 + j] >> 4) - 8);
            } else {
                out[j * stride] = d * static_cast<float>(static_cast<int8_t>(p[2 + j]));
            }
        }
    }
}

template <WeightType T>
KEEL_SIMD void unpack_floats(const uint8_t *row, int64_t i, int64_t n, float *out, int64_t stride) {
    for (int64_t j = 0; j < n; ++j)
        out[j * stride] = one_weight<T>(row + (i + j) * element_bytes<T>);
}

static void unpack_row_major(WeightType type, const uint8_t *row, int64_t i, int64_t n, float *out,
                             int64_t stride) {
    switch (type) {
    case WeightType::f32:
        return unpack_floats<WeightType::f32>(row, i, n, out, stride);
    case WeightType::f16:
        return unpack_floats<WeightType::f16>(row, i, n, out, stride);
    case WeightType::bf16:
        return unpack_floats<WeightType::bf16>(row, i, n, out, stride);
    case WeightType::q8_0:
        return unpack_blocks<false>(row, i, n, out, stride);
    case WeightType::q4_0:
        return unpack_blocks<true>(row, i, n, out, stride);
    default:
        return unpack_k_stored(type, row, i, n, out, stride);
    }
}

// Converts one row of a group to f32. The row's 4-byte pieces are 4 R bytes apart.
static void unpack_interleaved_row(const WeightView &w, int64_t row, float *out) {
    if (is_k(w.type)) return unpack_k_row(w, row, out);
    const bool q4 = w.type == WeightType::q4_0;
    const int64_t data = (q4 ? 16 : 32) * R, lane = row % R;
    const uint8_t *p = w.packed + row / R * w.group_bytes;
    for (int64_t b = 0; b < w.cols / 32; ++b, p += 2 * R + data, out += 32) {
        const float d = read_f16(p + 2 * lane);
        for (int j = 0; j < (q4 ? 16 : 32); ++j) {
            const uint8_t byte = p[2 * R + j / 4 * 4 * R + lane * 4 + j % 4];
            if (q4) {
                out[j] = d * static_cast<float>((byte & 15) - 8);
                out[j + 16] = d * static_cast<float>((byte >> 4) - 8);
            } else {
                out[j] = d * static_cast<float>(static_cast<int8_t>(byte));
            }
        }
    }
}

static void unpack_row(const WeightView &w, int64_t row, float scale, float *out) {
    if (w.layout == Layout::interleaved)
        unpack_interleaved_row(w, row, out);
    else
        unpack_row_major(w.type, row_of(w, row), 0, w.cols, out, 1);
    if (scale != 1.0f)
        for (int64_t i = 0; i < w.cols; ++i)
            out[i] *= scale;
}

// ---- panels: [k][panel_rows] floats ----

constexpr int panel_vectors = W == 1 ? 8 : 2; // number of vectors in a row of a panel
constexpr int64_t panel_rows = panel_vectors * W;

// Converts columns k0 .. k0 + n - 1 of group g to f32. The group's rows become the panel's columns
// from `at` on.
template <bool Q4>
static void unpack_group(const WeightView &w, int64_t g, int64_t k0, int64_t n, float *panel,
                         int64_t at) {
    constexpr int64_t data = (Q4 ? 16 : 32) * R, block = 2 * R + data;
    const uint8_t *p = w.packed + g * w.group_bytes + k0 / 32 * block;
    float *out = panel + at;
    for (int64_t b = 0; b < n / 32; ++b, p += block, out += 32 * panel_rows) {
        const G d = group_load_f16(reinterpret_cast<const uint16_t *>(p));
        for (int piece = 0; piece < (Q4 ? 4 : 8); ++piece) {
            const I bytes = load_bytes(p + 2 * R + piece * 4 * R);
            for (int byte = 0; byte < 4; ++byte) {
                const int k = 4 * piece + byte;
                if constexpr (Q4) {
                    group_store(out + k * panel_rows,
                                group_mul(d, extract_nibble_f32(bytes, byte, 0)));
                    group_store(out + (k + 16) * panel_rows,
                                group_mul(d, extract_nibble_f32(bytes, byte, 1)));
                } else {
                    group_store(out + k * panel_rows, group_mul(d, extract_byte_f32(bytes, byte)));
                }
            }
        }
    }
}

template <WeightType T>
static void unpack_squares(const uint8_t *const *rows, int64_t k0, int64_t n, float *panel) {
    int64_t i = 0;
#if !defined(KEEL_CPU_SCALAR_KERNELS)
    for (; i + 8 <= n; i += 8)
        for (int64_t r = 0; r < panel_rows; r += 8)
            unpack_square<T>(rows + r, k0 + i, panel + i * panel_rows + r, panel_rows);
#endif
    for (int64_t r = 0; r < panel_rows; ++r)
        unpack_floats<T>(rows[r], k0 + i, n - i, panel + i * panel_rows + r, panel_rows);
}

// Converts columns k0 .. k0 + n - 1 of rows n0 .. n0 + count - 1 of W to a panel. If W has fewer
// rows than the panel, the remaining columns of the panel repeat another row. Products with these
// columns are not used.
static void unpack_panel(const WeightView &w, int64_t n0, int64_t count, int64_t k0, int64_t n,
                         float *panel) {
    if (w.layout == Layout::interleaved) {
        for (int64_t at = 0; at < panel_rows; at += R) {
            const int64_t g = (n0 + (at < count ? at : 0)) / R;
            if (is_k(w.type))
                unpack_k_group(w, g, k0, n, panel + at, panel_rows);
            else if (w.type == WeightType::q4_0)
                unpack_group<true>(w, g, k0, n, panel, at);
            else
                unpack_group<false>(w, g, k0, n, panel, at);
        }
        return;
    }
    const uint8_t *rows[panel_rows];
    for (int64_t r = 0; r < panel_rows; ++r)
        rows[r] = row_of(w, n0 + (r < count ? r : 0));
    switch (w.type) {
    case WeightType::f32:
        return unpack_squares<WeightType::f32>(rows, k0, n, panel);
    case WeightType::f16:
        return unpack_squares<WeightType::f16>(rows, k0, n, panel);
    case WeightType::bf16:
        return unpack_squares<WeightType::bf16>(rows, k0, n, panel);
    default:
        for (int64_t r = 0; r < panel_rows; ++r)
            unpack_row_major(w.type, rows[r], k0, n, panel + r, panel_rows);
    }
}

static void convert(WeightType from, const uint8_t *x, WeightType to, uint8_t *out, int64_t n) {
    float piece[64];
    // The conversion goes through f32, which holds both 16-bit types exactly.
    for (int64_t i = 0; i < n; i += 64) {
        const int64_t part = n - i < 64 ? n - i : 64;
        unpack_row_major(from, x, i, part, piece, 1);
        for (int64_t j = 0; j < part; ++j) {
            if (to == WeightType::f32) {
                memcpy(out + 4 * (i + j), piece + j, 4);
            } else {
                const uint16_t h =
                    to == WeightType::f16 ? f32_to_f16(piece[j]) : f32_to_bf16(piece[j]);
                memcpy(out + 2 * (i + j), &h, 2);
            }
        }
    }
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE
