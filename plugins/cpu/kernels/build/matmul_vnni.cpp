#define KEEL_CPU_VNNI
#include "cpu/kernels/isa/int8_avx512.hpp"
#include "cpu/kernels/linear.hpp"

namespace keel_cpu::vnni {
#include "cpu/kernels/isa/transpose_x86.hpp"
} // namespace keel_cpu::vnni

#include "cpu/kernels/algo/linear.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_vnni() {
    return &vnni::linear_table;
}
} // namespace keel_cpu
