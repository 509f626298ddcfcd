#include "cpu/kernels/isa/simd_avx2.hpp"
#include "cpu/kernels/tables.hpp"

#include "cpu/kernels/algo/rows.inl"

namespace keel_cpu {
const RowKernels *row_kernels_avx2() { return &avx2::row_table; }
} // namespace keel_cpu
