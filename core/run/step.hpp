#pragma once

#include "graph/graph.hpp"
#include "kv/evict/cache_manager.hpp"
#include "run/engine.hpp"

#include <cstdint>
#include <vector>

namespace keel {

// One engine's part of a sequence's step.
struct StageStep {
    Engine *engine;
    LayerCaches *caches; // caches of the engine's layers
    // Collects by-products of the step for the policy of this engine's layers, see Segment. NULL:
    // the step writes no by-products.
    StepTap *tap = nullptr;
    const TapOps *tap_ops = nullptr;
};

// The rows of one sequence in a step. A step can have rows of several sequences.
struct SequenceRows {
    std::vector<int32_t> ids;       // tokens, [m]
    std::vector<int32_t> positions; // RoPE positions of these tokens, [m]
    std::vector<StageStep> stages;  // in the order of the layers
    StepKind kind = StepKind::decode;
    uint32_t logit_rows = 0; // number of the last tokens that get logits
};

} // namespace keel
