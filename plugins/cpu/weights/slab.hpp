// Memory for weights, cut from large slabs that consist of huge pages. So the end of a weight does
// not fall on small pages.
#pragma once

#include "cpu/memory/memory.hpp"

struct keel_ctx;

namespace keel_cpu {

// A slab, and the number of weights in it. It is freed with the last of them.
struct WeightSlab {
    Memory memory;
    uint64_t used;
    uint32_t weights;
};

// Memory for a weight, aligned to 64 bytes. `slab` is set to the slab from which it was cut, or to
// NULL for a separate block. data is NULL if there is no memory.
Memory weight_alloc(keel_ctx *ctx, uint64_t bytes, WeightSlab *&slab) noexcept;
// Leaves an empty block. An empty block is allowed.
void weight_free(keel_ctx *ctx, Memory &memory, WeightSlab *&slab) noexcept;

} // namespace keel_cpu
