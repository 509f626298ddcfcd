#pragma once

#include "graph/step_tap.hpp"

#include <keel/kv.h>

#include <cstdint>
#include <span>

namespace keel {

class TapOps;

// Tokens of one sequence in a step. The tokens are consecutive, and they attend to the cache of
// this sequence. All memory to which a segment points must outlive the step.
struct Segment {
    std::span<const int32_t> positions; // RoPE position of each token
    std::span<const keel_kv_view *const>
        kv; // one view of the cache for each layer; the slots must already exist
    // The tokens. If empty, the step takes the tokens that argmax wrote to NextToken::ids().
    std::span<const int32_t> ids;
    // f32 [tokens, hidden] in host memory: the output of the previous layers. Only for a graph
    // without the model's first layer.
    std::span<const float> residual;
    uint32_t logit_rows = 0; // number of the last tokens that get logits
    // Collects the by-products for a policy. NULL: the step writes no by-products. The step runs
    // ops that write the by-products that the tap needs.
    StepTap *tap = nullptr;
    const TapOps *tap_ops = nullptr;

    uint32_t tokens() const { return static_cast<uint32_t>(positions.size()); }
};

} // namespace keel
