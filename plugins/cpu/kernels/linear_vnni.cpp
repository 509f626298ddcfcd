#define KEEL_CPU_VNNI
#include "int8_avx512.hpp"
#include "linear.hpp"

namespace keel_cpu::vnni {
#include "transpose_x86.hpp"
} // namespace keel_cpu::vnni

#include "generic/linear.inl"

namespace keel_cpu {
const LinearKernels *linear_kernels_vnni() {
    return &vnni::linear_table;
}
} // namespace keel_cpu
