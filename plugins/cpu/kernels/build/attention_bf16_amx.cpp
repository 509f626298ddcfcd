#define KEEL_CPU_AMX
#include "cpu/kernels/algo/attention_bf16_amx.inl"

namespace keel_cpu {
const Bf16AttentionKernels *bf16_attention_kernels_amx() { return &amx::table; }
} // namespace keel_cpu
