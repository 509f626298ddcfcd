#pragma once

#include "graph/step_tap.hpp"
#include "kv/evict/budget.hpp"
#include "kv/evict/cache_config.hpp"
#include "kv/evict/eviction_log.hpp"
#include "kv/evict/rerotation_ops.hpp"
#include "kv/inputs/input_ops.hpp"
#include "kv/store/kv_cache.hpp"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace keel {

// Returns the needs that a policy declares for a model of this geometry. Does not check the needs,
// so it can be called before ops are planned. The pointers in the needs are NULL. The matrix of
// KEEL_NEED_KEY_PROJECT goes to `projection`. Without a policy (table NULL), the needs say that all
// slots are kept. Throws Error(plugin) with the policy's message if the policy cannot be created.
keel_policy_needs ask_policy(const CacheConfig &config, const KvShape &shape,
                             const HostServices &host, std::vector<float> *projection = nullptr);

// Determines when a sequence keeps the queries of its last tokens (QueryRing) for the next
// eviction. The policy scores slots with a window of queries. If the step before the eviction
// computes all queries of this window, older queries need not be kept.
enum class RingUse {
    none,         // the sequence keeps queries only at a pause in a prompt, because each step
                  // before an eviction has all queries of the window
    after_prompt, // the sequence keeps queries from the last step of a prompt on, because a decode
                  // step has only one query
    always,       // the sequence always keeps queries, because an eviction can come before a step,
                  // or a fork under another policy can evict
};

// The part of cache management that all sequences of a pipeline share: the checked config, the
// policy's needs, the planned ops. Create this object after the graph is planned, and before
// buffers are allocated. The setup plans further ops, and the backend that runs an op decides where
// the op's buffers are placed.
//
// Throws Error(input) with the config key if the config cannot work. Examples: the policy needs an
// input that this version of Keel cannot compute; the policy needs a budget, but the config has
// none; the budget is smaller than the number of protected slots.
class PolicySetup {
  public:
    // `also`: inputs that sequences also collect, for forks under other policies.
    PolicySetup(Executor &executor, const KvShape &shape, std::shared_ptr<HostServices> host,
                CacheConfig config, const Collected &also = {});
    PolicySetup(const PolicySetup &) = delete;
    PolicySetup &operator=(const PolicySetup &) = delete;

    const CacheConfig &config() const { return config_; }
    const KvShape &shape() const { return shape_; } // shape of the layers on which the policy acts
    const KvLayout &layout() const { return layout_; }
    const keel_policy_needs &needs() const { return needs_; }
    bool needs(uint64_t bit) const { return (needs_.needs & bit) != 0; }
    const keel_geometry &geometry() const { return geometry_; }
    Executor &executor() const { return executor_; }
    const std::shared_ptr<HostServices> &host() const { return host_; }
    const Budget &budget() const { return *budget_; }
    const AllocatorForm &allocator() const { return allocator_; }

    bool keeps_all() const { return (needs_.flags & KEEL_POLICY_KEEPS_ALL) != 0; }
    bool acts_in_prefill() const { return (needs_.flags & KEEL_POLICY_BLOCKWISE) != 0; }
    bool prefill_only() const { return (needs_.flags & KEEL_POLICY_PREFILL_ONLY) != 0; }
    bool may_move_keys() const { return keel::may_move_keys(config_, needs_); }
    bool keeps_pristine() const { return keel::keeps_pristine(config_, needs_, shape_); }

    // The inputs that sequences collect while steps run, and the by-products of steps from which
    // these inputs are made.
    const Collected &collected() const { return collected_; }
    TapForms tap_forms() const;
    RingUse ring_use() const;
    // Returns true if memory pressure can require an eviction that the policy cannot decide. See
    // key_rule_needs.
    bool may_use_key_rule() const;
    // Returns an estimate of the most bytes that a sequence holds for the policy if its cache has
    // `slots` slots per head. The bytes of the cache are not included.
    uint64_t state_bytes(int64_t slots) const;
    // Returns true if decode steps record anything for a policy.
    bool collects_in_decode() const {
        return ring_use() != RingUse::none || collected_.running || collected_.stats;
    }
    EvictionLog *log() const { return log_.get(); } // the log of all sequences; NULL: no log
    const std::shared_ptr<EvictionLog> &log_ptr() const { return log_; }
    // returns the number of a new sequence, for the log
    uint64_t next_sequence() { return sequences_++; }
    // The planned ops, for `--explain`.
    std::vector<const PlannedOp *> ops() const;

    // CacheManager uses these ops.
    PlannedOp *gather() const { return gather_.get(); }
    const InputOps &inputs() const { return inputs_; }
    LogitRules logit_rules() const { return {config_.attention_softcap, config_.attention_window}; }
    const RerotationOps &rerotation() const { return rerotation_; }
    std::span<const float> projection() const { return projection_; } // [head_dim, projection_cols]

  private:
    void settle_window();
    void check_rotation() const;
    void plan_ops();
    void open_log();

    Executor &executor_;
    KvShape shape_;
    KvLayout layout_;
    std::shared_ptr<HostServices> host_;
    CacheConfig config_;
    keel_geometry geometry_ = {KEEL_HEADER(keel_geometry)};
    keel_policy_needs needs_ = {KEEL_HEADER(keel_policy_needs)};
    AllocatorForm allocator_;
    std::optional<Budget> budget_;
    Collected collected_;
    std::vector<float> projection_;
    InputOps inputs_;
    RerotationOps rerotation_;
    OpHandle gather_;
    uint64_t sequences_ = 0;
    std::shared_ptr<EvictionLog> log_;
};

} // namespace keel
