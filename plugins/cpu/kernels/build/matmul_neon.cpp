#define KEEL_ARM_LEVEL KEEL_ARM_NEON
#include "cpu/kernels/build/matmul_arm.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_neon() {
    return &neon::linear_table;
}
} // namespace keel_cpu
