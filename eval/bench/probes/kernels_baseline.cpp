#include "eval/bench/probes/kernels.hpp"

namespace keel {
namespace {

using Words = uint64_t __attribute__((vector_size(16)));
using Floats = float __attribute__((vector_size(16)));

constexpr int chains = 12; // hides the latency of two units, and fits in 16 registers

template <bool prefetch> uint64_t read(const std::byte *at, size_t bytes) {
    Words sum[4] = {};
    for (size_t i = 0; i < bytes; i += 64) {
        if (prefetch) __builtin_prefetch(at + i + probe_prefetch_distance);
        const auto *line = reinterpret_cast<const Words *>(at + i);
        sum[0] ^= line[0];
        sum[1] ^= line[1];
        sum[2] ^= line[2];
        sum[3] ^= line[3];
    }
    const Words all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
    return all[0] ^ all[1];
}

float multiply_add(uint64_t rounds) {
    Floats acc[chains];
    for (int i = 0; i < chains; ++i) acc[i] = Floats{} + static_cast<float>(i);
    const Floats factor = Floats{} + 0.999F, addend = Floats{} + 0.001F;
    for (uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
        for (int i = 0; i < chains; ++i) acc[i] = acc[i] * factor + addend;
    }
    Floats all = acc[0];
    for (int i = 1; i < chains; ++i) all += acc[i];
    return all[0] + all[1] + all[2] + all[3];
}

} // namespace

const ProbeKernels &baseline_probe_kernels() {
    static constexpr ProbeKernels kernels = {"128-bit vectors", read<false>, read<true>,
                                             multiply_add, uint64_t{chains} * 4 * 2};
    return kernels;
}

} // namespace keel
