// Kernels behind the linear, norm, activation, elementwise and row ops: one table per instruction set.
#pragma once

#include "../cpu_features.hpp"

namespace keel_cpu {

struct LinearKernels {
    const char *isa; // word compiled into the file that the kernels come from
};

const LinearKernels *linear_kernels_scalar();
const LinearKernels *linear_kernels_avx2();
const LinearKernels *linear_kernels_avx512();

inline const LinearKernels *linear_kernels(Isa isa) {
    return isa == Isa::avx512 ? linear_kernels_avx512()
           : isa == Isa::avx2 ? linear_kernels_avx2()
                              : linear_kernels_scalar();
}

} // namespace keel_cpu
