#define KEEL_CPU_AMX
#include "cpu/kernels/algo/matmul_any_bf16_amx.inl"

namespace keel_cpu {
const Bf16MatmulKernels *bf16_matmul_kernels_amx() { return &amx::table; }
} // namespace keel_cpu
