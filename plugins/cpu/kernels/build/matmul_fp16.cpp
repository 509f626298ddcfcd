#define KEEL_ARM_LEVEL KEEL_ARM_FP16
#include "cpu/kernels/build/matmul_arm.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_fp16() {
    return &fp16::linear_table;
}
} // namespace keel_cpu
