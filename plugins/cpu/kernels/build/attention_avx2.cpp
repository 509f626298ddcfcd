#include "cpu/kernels/isa/simd_avx2.hpp"
#include "cpu/kernels/tables.hpp"

#include "cpu/kernels/algo/attention.inl"

namespace keel_cpu {
const AttentionKernels *attention_kernels_avx2() { return &avx2::attention_table; }
} // namespace keel_cpu
