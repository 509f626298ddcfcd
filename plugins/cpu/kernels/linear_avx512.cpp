#include "linear.hpp"
#include "simd_avx512.hpp"

#include "generic/linear.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_avx512() {
    return &avx512::linear_table;
}
} // namespace keel_cpu
