#define KEEL_ARM_LEVEL KEEL_ARM_I8MM
#include "cpu/kernels/build/matmul_arm.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_i8mm() {
    return &i8mm::linear_table;
}
} // namespace keel_cpu
