#define KEEL_CPU_SCALAR_KERNELS
#include "cpu/kernels/isa/int8_scalar.hpp"
#include "cpu/kernels/linear.hpp"

#include "cpu/kernels/algo/linear.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_scalar() {
    return &scalar::linear_table;
}
} // namespace keel_cpu
