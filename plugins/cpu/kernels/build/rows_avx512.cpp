#include "cpu/kernels/isa/simd_avx512.hpp"
#include "cpu/kernels/tables.hpp"

#include "cpu/kernels/algo/rows.inl"

namespace keel_cpu {
const RowKernels *row_kernels_avx512() { return &avx512::row_table; }
} // namespace keel_cpu
