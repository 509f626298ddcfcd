#pragma once

#include "graph/step_tap.hpp"
#include "kv/evict/cache_config.hpp"
#include "kv/evict/eviction_log.hpp"
#include "kv/inputs/input_ops.hpp"
#include "kv/store/kv_cache.hpp"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Slots that may stay and the room above them, per head.
struct BudgetNow {
    int64_t tokens =
        0; // after an eviction no head's share is above, on average; protected slots included
    int64_t slack = 0; // more that may come before the budget trigger fires
};

// What a policy says about itself when it is made for such a model, checked no further: it is known before anything is planned. Needs'
// pointers are none; the matrix of KEEL_NEED_KEY_PROJECT goes to `projection`. Without a policy (table NULL) all is kept. Throws
// Error(plugin) with the policy's own message if it cannot be set up.
keel_policy_needs ask_policy(const CacheConfig &config, const KvShape &shape,
                             const HostServices &host, std::vector<float> *projection = nullptr);

// What all sequences of a pipeline share of cache management: the checked config, what the policy says it needs, the planned ops. Made
// when the pipeline is built, after the graph was planned and before buffers are made (fallbacks decide where those lie).
//
// Throws Error(input) naming the config key for what cannot work: a need that this version does not compute, no budget where one is
// needed, a budget smaller than what is protected.
class CachePlan {
  public:
    // `also`: what its sequences collect beside what their own policy needs, for forks under other plans.
    CachePlan(Executor &executor, const KvShape &shape, std::shared_ptr<HostServices> host,
              CacheConfig config, const Gathered &also = {});
    CachePlan(const CachePlan &) = delete;
    CachePlan &operator=(const CachePlan &) = delete;

    const CacheConfig &config() const { return config_; }
    int64_t pinned_slots() const; // of CacheConfig::pinned, behind the protected prefix
    const KvShape &shape() const { return shape_; }
    const keel_policy_needs &needs() const { return needs_; }
    const keel_geometry &geometry() const { return geometry_; }
    Executor &executor() const { return executor_; }
    const std::shared_ptr<HostServices> &host() const { return host_; }

    bool keeps_all() const { return (needs_.flags & KEEL_POLICY_KEEPS_ALL) != 0; }
    bool acts_in_prefill() const { return (needs_.flags & KEEL_POLICY_BLOCKWISE) != 0; }
    bool prefill_only() const { return (needs_.flags & KEEL_POLICY_PREFILL_ONLY) != 0; }
    // Are quantized keys rotated again? Then a copy of those that move is kept, see PristineKeys.
    bool keeps_pristine() const {
        return may_move_keys() && keel_dtype_block(shape_.key_dtype) > 1;
    }
    bool may_move_keys() const {
        return !keeps_all() && config_.positions != KvPositions::absolute;
    }
    // The budget when `seen` tokens were seen (they matter for a ratio) of a sequence whose first `prefix` slots are protected, which are
    // at least CacheConfig::protect_prefix. Not for a policy that keeps all.
    BudgetNow budget(int64_t seen, int64_t prefix) const;
    BudgetNow budget(int64_t seen) const { return budget(seen, config_.protect_prefix); }
    // Throws Error(input) naming the key if a prefix of so many slots leaves no room in the budget. `what` it is: "the system prompt".
    void check_prefix(int64_t prefix, std::string_view what) const;
    // Slots per head, on average, that one sequence may come to hold: all of capacity_slots() unless the policy acts between the chunks
    // of a prompt (of at most `chunk` tokens) and the budget is a number.
    int64_t peak_slots(int64_t chunk) const;
    // About what CacheManager::policy_bytes comes to in a context of so many tokens, of which the cache holds `held` when slots go.
    uint64_t policy_need_bytes(int64_t context, int64_t held) const;
    // Slots per head that model.context and kv.max_mib leave to one sequence.
    int64_t capacity_slots() const;
    // With a budget in MiB whose trigger is `budget`: slots per head, on average, that fit into it, so that a prompt's chunks are cut not to
    // pass it. 0: there is no such budget.
    int64_t mib_slots() const { return config_.at_budget ? mib_slots_ : 0; }
    bool has_ragged_budgets() const { return ragged_; }
    bool allocates_by_scores() const { return by_scores_; }
    // What sequences collect while steps run, and the by-products of steps that it is made of.
    const Gathered &gathered() const { return gathered_; }
    TapForms tap_forms() const;
    EvictionLog *log() const { return log_.get(); } // of all sequences; NULL: none
    const std::shared_ptr<EvictionLog> &log_ptr() const { return log_; }
    uint64_t next_sequence() { return sequences_++; } // numbers sequences for the log
    // The planned ops, for `--explain`.
    std::vector<const PlannedOp *> ops() const;

    // For CacheManager.
    PlannedOp *gather() const { return gather_.get(); }
    const InputOps &inputs() const { return inputs_; }
    std::span<const float> projection() const { return projection_; } // [head_dim, projection_cols]
    PlannedOp *capture() const { return capture_.get(); }   // key_project of the protected prefix
    PlannedOp *rerotate() const { return rerotate_.get(); } // in place
    PlannedOp *restore() const { return restore_.get(); }   // from the captured prefix
    PlannedOp *read_pristine() const { return read_pristine_.get(); }   // rows of a copy, by number
    PlannedOp *write_pristine() const { return write_pristine_.get(); } // f32 to the K dtype
    static constexpr int64_t rerotate_rows = 256; // distinct rotations of a call

  private:
    void check_needs();
    void check_part() const;
    void check_scores() const;
    void plan_rerotation();
    void check_allocator();
    void check_budget();
    int64_t mib_budget();
    void check_positions();
    void plan_ops();
    int64_t protected_slots() const {
        return config_.protect_prefix + config_.protect_recent + pinned_slots();
    }

    Executor &executor_;
    KvShape shape_;
    std::shared_ptr<HostServices> host_;
    CacheConfig config_;
    keel_geometry geometry_ = {KEEL_HEADER(keel_geometry)};
    keel_policy_needs needs_ = {KEEL_HEADER(keel_policy_needs)};
    std::string budget_key_; // that the budget comes from, for messages
    int64_t fixed_ = 0;      // slots per head; with a ratio the least that it may come to
    int64_t mib_slots_ =
        0; // slots per head that a budget in MiB holds with all that comes on top; 0: it is none
    bool uneven_ = false;    // heads may come to differ in length
    bool ragged_ = false;    // the allocator gives heads of a layer different budgets
    bool by_scores_ = false; // and wants the policy's scores for it
    Gathered gathered_;
    std::vector<float> projection_;
    InputOps inputs_;
    uint64_t sequences_ = 0;
    std::shared_ptr<EvictionLog> log_;
    OpHandle gather_, capture_, rerotate_, restore_, read_pristine_, write_pristine_;
    uint64_t slot_row_bytes() const; // of a block of each head of all layers
};

} // namespace keel
