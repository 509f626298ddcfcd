#include "linear.hpp"
#include "simd_scalar.hpp"

#include "generic/linear.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_scalar() {
    return &scalar::linear_table;
}
} // namespace keel_cpu
