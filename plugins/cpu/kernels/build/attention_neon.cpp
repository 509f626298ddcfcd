#define KEEL_ARM_LEVEL KEEL_ARM_NEON
#include "cpu/kernels/isa/simd_neon.hpp"
#include "cpu/kernels/tables.hpp"

#include "cpu/kernels/algo/attention.inl"

namespace keel_cpu {
const AttentionKernels *attention_kernels_neon() { return &neon::attention_table; }
} // namespace keel_cpu
