#include "cpu/kernels/isa/simd_scalar.hpp"
#include "cpu/kernels/tables.hpp"

#include "cpu/kernels/algo/attention.inl"

namespace keel_cpu {
const AttentionKernels *attention_kernels_scalar() { return &scalar::attention_table; }
} // namespace keel_cpu
