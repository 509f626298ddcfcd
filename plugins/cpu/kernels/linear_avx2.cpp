#include "int8_avx2.hpp"
#include "linear.hpp"

namespace keel_cpu::avx2 {
#include "transpose_x86.hpp"
} // namespace keel_cpu::avx2

#include "generic/linear.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_avx2() {
    return &avx2::linear_table;
}
} // namespace keel_cpu
