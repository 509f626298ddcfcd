// Memory for weights. It is taken from large slabs that consist of huge pages. So the end of a
// weight is also on a huge page.
#pragma once

#include "cpu/memory/memory.hpp"

struct keel_ctx;

namespace keel_cpu {

// A slab and the number of weights in it. The slab is freed with its last weight.
struct WeightSlab {
    Memory memory;
    uint64_t used;
    uint32_t weights;
};

// Returns memory for a weight, aligned to 64 bytes. Sets `slab` to the slab that contains the
// memory, or to NULL if the memory is a separate block. `data` of the result is NULL if there is no
// memory.
Memory weight_alloc(keel_ctx *ctx, uint64_t bytes, WeightSlab *&slab) noexcept;
// Frees the memory of a weight. `memory` may be empty before the call, and is empty after it.
void weight_free(keel_ctx *ctx, Memory &memory, WeightSlab *&slab) noexcept;

} // namespace keel_cpu
