#define KEEL_ARM_LEVEL KEEL_ARM_NEON
#include "cpu/kernels/isa/int8_neon.hpp"
#include "cpu/kernels/isa/transpose_neon.hpp"
#include "cpu/kernels/tables.hpp"

#include "cpu/kernels/algo/matmul_table.inl"

namespace keel_cpu {
const MatmulKernels *matmul_kernels_neon() { return &neon::matmul_table; }
} // namespace keel_cpu
