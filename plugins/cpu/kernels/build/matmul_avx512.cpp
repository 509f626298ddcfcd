#include "cpu/kernels/isa/int8_avx512.hpp"
#include "cpu/kernels/linear.hpp"

namespace keel_cpu::avx512 {
#include "cpu/kernels/isa/transpose_x86.hpp"
} // namespace keel_cpu::avx512

#include "cpu/kernels/algo/linear.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_avx512() {
    return &avx512::linear_table;
}
} // namespace keel_cpu
