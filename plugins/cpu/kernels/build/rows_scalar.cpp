#include "cpu/kernels/isa/simd_scalar.hpp"
#include "cpu/kernels/tables.hpp"

#include "cpu/kernels/algo/rows.inl"

namespace keel_cpu {
const RowKernels *row_kernels_scalar() { return &scalar::row_table; }
} // namespace keel_cpu
