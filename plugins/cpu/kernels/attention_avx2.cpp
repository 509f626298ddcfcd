#include "attention.hpp"
#include "simd_avx2.hpp"

#include "generic/attention.inl"

namespace keel_cpu {
const AttentionKernels *attention_kernels_avx2() {
    return &avx2::attention_table;
}
} // namespace keel_cpu
