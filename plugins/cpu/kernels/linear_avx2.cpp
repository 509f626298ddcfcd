#include "linear.hpp"
#include "simd_avx2.hpp"

#include "generic/linear.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_avx2() {
    return &avx2::linear_table;
}
} // namespace keel_cpu
