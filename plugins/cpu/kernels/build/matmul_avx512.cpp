#include "cpu/kernels/isa/int8_avx512.hpp"
#include "cpu/kernels/isa/transpose_x86.hpp"
#include "cpu/kernels/tables.hpp"

#include "cpu/kernels/algo/matmul_table.inl"

namespace keel_cpu {
const MatmulKernels *matmul_kernels_avx512() { return &avx512::matmul_table; }
} // namespace keel_cpu
