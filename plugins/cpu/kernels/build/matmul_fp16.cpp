#define KEEL_ARM_LEVEL KEEL_ARM_FP16
#include "cpu/kernels/isa/int8_neon.hpp"
#include "cpu/kernels/isa/transpose_neon.hpp"
#include "cpu/kernels/tables.hpp"

#include "cpu/kernels/algo/matmul_table.inl"

namespace keel_cpu {
const MatmulKernels *matmul_kernels_fp16() { return &fp16::matmul_table; }
} // namespace keel_cpu
