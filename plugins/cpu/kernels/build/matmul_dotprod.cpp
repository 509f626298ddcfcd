#define KEEL_ARM_LEVEL KEEL_ARM_DOTPROD
#include "cpu/kernels/build/matmul_arm.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_dotprod() {
    return &dotprod::linear_table;
}
} // namespace keel_cpu
