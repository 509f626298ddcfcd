#define KEEL_ARM_LEVEL KEEL_ARM_NEON
#include "cpu/kernels/isa/simd_neon.hpp"
#include "cpu/kernels/tables.hpp"

#include "cpu/kernels/algo/rows.inl"

namespace keel_cpu {
const RowKernels *row_kernels_neon() { return &neon::row_table; }
} // namespace keel_cpu
