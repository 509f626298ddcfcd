#include "attention.hpp"
#include "simd_scalar.hpp"

#include "generic/attention.inl"

namespace keel_cpu {
const AttentionKernels *attention_kernels_scalar() {
    return &scalar::attention_table;
}
} // namespace keel_cpu
