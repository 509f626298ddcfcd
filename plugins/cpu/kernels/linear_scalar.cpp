#define KEEL_CPU_SCALAR_KERNELS
#include "int8_scalar.hpp"
#include "linear.hpp"

#include "generic/linear.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_scalar() {
    return &scalar::linear_table;
}
} // namespace keel_cpu
