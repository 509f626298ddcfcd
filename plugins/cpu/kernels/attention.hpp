// Kernels behind the attention, cache and policy-input ops: one table per instruction set.
#pragma once

#include "../cpu_features.hpp"

namespace keel_cpu {

struct AttentionKernels {
    const char *isa; // word compiled into the file that the kernels come from
};

const AttentionKernels *attention_kernels_scalar();
const AttentionKernels *attention_kernels_avx2();
const AttentionKernels *attention_kernels_avx512();

inline const AttentionKernels *attention_kernels(Isa isa) {
    return isa == Isa::avx512 ? attention_kernels_avx512()
           : isa == Isa::avx2 ? attention_kernels_avx2()
                              : attention_kernels_scalar();
}

} // namespace keel_cpu
