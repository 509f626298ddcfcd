#include "attention.hpp"
#include "simd_avx512.hpp"

#include "generic/attention.inl"

namespace keel_cpu {
const AttentionKernels *attention_kernels_avx512() {
    return &avx512::attention_table;
}
} // namespace keel_cpu
