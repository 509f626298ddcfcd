// Transposes eight rows of eight floats, to unpack row-major weights into panels. This file is
// compiled once for each instruction set, after its simd_neon.hpp.
#include "cpu/kernels/tables.hpp"

namespace keel_cpu::KEEL_ISA_NAMESPACE {

// Writes columns i .. i + 7 of eight rows to out[column][row].
template <WeightType T>
KEEL_SIMD void unpack_square(const uint8_t *const *rows, int64_t i, float *out, int64_t stride) {
    F v[8];
    for (int r = 0; r < 8; ++r) {
        if constexpr (T == WeightType::f32)
            v[r] = load(reinterpret_cast<const float *>(rows[r] + 4 * i));
        else if constexpr (T == WeightType::f16)
            v[r] = load_f16(reinterpret_cast<const uint16_t *>(rows[r] + 2 * i));
        else
            v[r] = load_bf16(reinterpret_cast<const uint16_t *>(rows[r] + 2 * i));
    }
    store_turned(v, out, stride);
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE
