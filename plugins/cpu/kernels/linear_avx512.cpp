#include "int8_avx512.hpp"
#include "linear.hpp"

namespace keel_cpu::avx512 {
#include "transpose_x86.hpp"
} // namespace keel_cpu::avx512

#include "generic/linear.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_avx512() {
    return &avx512::linear_table;
}
} // namespace keel_cpu
