#pragma once

#include "kv/evict/policy_setup.hpp"

#include <functional>
#include <utility>
#include <vector>

namespace keel {

// Queues attention_scores of a step's queries over slot ranges of one layer, and adds the scores to
// `out`. If all heads have equal ranges, one call computes all heads. Otherwise there is one call
// for each head.
struct RangeScores {
    // Begin and end of each range. The ranges must not overlap. There are at most
    // InputOps::most_ranges ranges.
    using Ranges = std::vector<std::pair<int64_t, int64_t>>;

    // `room`: i32 [most_ranges, 2] on the device, for the ranges.
    RangeScores(PolicySetup &setup, const KvCache &cache, uint32_t layer, const Tensor &room)
        : setup_(setup), cache_(cache), layer_(layer), room_(room) {}

    Tensor q;   // [m, heads, head_dim], in the activation type
    Tensor out; // f32 [kv_heads, slots]
    keel_reduce queries = KEEL_REDUCE_SUM, group = KEEL_REDUCE_MEAN;
    uint64_t features = 0;                    // KEEL_SCORES_CAUSAL or 0
    const keel_tensor *q_positions = nullptr; // i32 [m], for LogitRules

    // `of` returns the ranges of a KV head.
    void run(const std::function<Ranges(uint32_t head)> &of);

  private:
    void queue(PlannedOp *op, const keel_tensor *queries_of, const keel_kv_view *view,
               const Tensor &sums, const Ranges &ranges);

    PolicySetup &setup_;
    const KvCache &cache_;
    uint32_t layer_;
    const Tensor &room_;
};

} // namespace keel
