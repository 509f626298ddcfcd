#define KEEL_CPU_SCALAR_KERNELS
#include "cpu/kernels/isa/int8_scalar.hpp"
#include "cpu/kernels/tables.hpp"

#include "cpu/kernels/algo/matmul_table.inl"

namespace keel_cpu {
const MatmulKernels *matmul_kernels_scalar() { return &scalar::matmul_table; }
} // namespace keel_cpu
