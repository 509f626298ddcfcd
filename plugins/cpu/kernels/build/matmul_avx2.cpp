#include "cpu/kernels/isa/int8_avx2.hpp"
#include "cpu/kernels/linear.hpp"

namespace keel_cpu::avx2 {
#include "cpu/kernels/isa/transpose_x86.hpp"
} // namespace keel_cpu::avx2

#include "cpu/kernels/algo/linear.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_avx2() {
    return &avx2::linear_table;
}
} // namespace keel_cpu
