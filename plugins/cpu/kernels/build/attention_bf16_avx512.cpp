#define KEEL_CPU_BF16
#include "cpu/kernels/algo/attention_bf16_avx512.inl"

namespace keel_cpu {
const Bf16AttentionKernels *bf16_attention_kernels_avx512() { return &avx512bf16::table; }
} // namespace keel_cpu
