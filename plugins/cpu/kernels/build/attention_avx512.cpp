#include "cpu/kernels/isa/simd_avx512.hpp"
#include "cpu/kernels/tables.hpp"

#include "cpu/kernels/algo/attention.inl"

namespace keel_cpu {
const AttentionKernels *attention_kernels_avx512() { return &avx512::attention_table; }
} // namespace keel_cpu
