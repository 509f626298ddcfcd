#pragma once

#include "kv/inputs/logit_rules.hpp"
#include "kv/inputs/policy_needs.hpp"
#include "kv/store/kv_shape.hpp"

#include <vector>

namespace keel {

// The ops that compute policy inputs. Only the ops for the policy's needs are planned. The handles
// of other ops are empty.
struct InputOps {
    // `rules` must stay valid during the call. `has_ring`: decode steps keep queries, see RingUse.
    // `tables`: a template of RoPE tables, for keys before RoPE. Throws the errors of
    // Executor::plan.
    static InputOps plan(Executor &executor, const KvShape &shape, const keel_policy_needs &needs,
                         const Collected &collected, const LogitRules &rules, bool has_ring,
                         const keel_rope_tables *tables);

    // Ops that run at an eviction and read the cache.
    OpHandle key_norms, value_norms;
    OpHandle key_sum;    // sum of normalized keys
    OpHandle key_anchor; // attention_scores of one query per KV head, without softmax
    // key_project: keys times the policy's matrix; keys: copies of the keys
    OpHandle key_project, keys;
    OpHandle window_scores; // attention_scores of the last queries
    OpHandle read_sums;     // copies the used part of the sums, so that one read is enough
    OpHandle order_queries; // copies kept queries of a layer, in order
    // Ops that run in steps.
    OpHandle keep_queries;  // copies the latest queries of a prefill step
    OpHandle place_queries; // moves a decode step's query to its place; only if steps are recorded
    OpHandle query_stats;
    // attention_scores of a step's queries over slot ranges. Used for chunk scores, and to repeat
    // the context.
    OpHandle piece_scores;
    OpHandle head_scores; // like piece_scores, but for one KV head; used if heads differ in length
    OpHandle clear_sums;  // sets sums to 0
    OpHandle grow_sums;   // copies sums to other memory

    std::vector<const PlannedOp *> list() const;

    static constexpr int64_t stats_rows = 8;    // the number of decoded queries that are added to
                                                // the statistics at a time
    static constexpr int64_t clear_slots = 256; // slots that are zeroed at a time
    static constexpr int64_t most_ranges = 3;
};

// The most tokens of a prefill step.
int64_t step_tokens(Executor &executor, const KvShape &shape);

} // namespace keel
