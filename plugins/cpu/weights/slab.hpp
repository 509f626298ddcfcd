// Memory of weights, cut from large pieces: whole huge pages, of which no weight has an end of its
// own in small ones.
#pragma once

#include "cpu/memory/memory.hpp"

struct keel_ctx;

namespace keel_cpu {

// A piece and how many weights lie in it. It goes back to the system with the last of them.
struct WeightSlab {
    Memory memory;
    uint64_t used;
    uint32_t weights;
};

// Memory for a weight, aligned to 64 bytes; `slab` is what it was cut from, NULL: it is a block of
// its own. data is NULL without memory.
Memory weight_alloc(keel_ctx *ctx, uint64_t bytes, WeightSlab *&slab) noexcept;
// Leaves an empty block; an empty one is fine.
void weight_free(keel_ctx *ctx, Memory &memory, WeightSlab *&slab) noexcept;

} // namespace keel_cpu
