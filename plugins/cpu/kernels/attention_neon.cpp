#define KEEL_ARM_LEVEL KEEL_ARM_NEON
#include "attention.hpp"
#include "simd_neon.hpp"

#include "generic/attention.inl"

namespace keel_cpu {
const AttentionKernels *attention_kernels_neon() {
    return &neon::attention_table;
}
} // namespace keel_cpu
