#pragma once

#include "device/tensor.hpp"

#include <keel/ops_attention.h>

#include <cstdint>

namespace keel {

// Collects by-products of the ops of a segment (queries, scores) for a policy. While Graph::forward
// queues the ops, it calls the tap for each layer in turn.
class StepTap {
  public:
    // The places to which a layer writes its by-products. NULL: the layer does not write this
    // by-product. Valid until the next call.
    struct Places {
        // Rotated queries in the activation dtype, [1, heads, head_dim]. Only in steps of one
        // token.
        const Tensor *queries = nullptr;
        const Tensor *unrotated = nullptr;   // f32 [m, heads, head_dim], queries before RoPE
        const keel_scores *scores = nullptr; // scores of attention
    };
    virtual Places places(uint32_t layer) = 0;
    // The graph calls this function after it has queued the attention of a layer. q: the rotated
    // queries of the layer in the activation dtype, [m, heads, head_dim]. Ops that are queued
    // during this call may read q.
    virtual void after_attention(uint32_t layer, const Tensor &q) = 0;
    // Returns true if the step queues the same ops as the previous and the next step. Only such a
    // step is recorded.
    virtual bool is_usual() const { return true; }

  protected:
    ~StepTap() = default;
};

// The by-products for which a graph plans ops.
struct TapForms {
    bool queries = false, unrotated = false, scores = false;
    keel_reduce reduce_queries = KEEL_REDUCE_SUM, reduce_group = KEEL_REDUCE_MEAN; // for the scores
    bool empty() const { return !queries && !unrotated && !scores; }
};

} // namespace keel
