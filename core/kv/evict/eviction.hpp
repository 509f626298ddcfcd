#pragma once

#include "kv/evict/budget_shares.hpp"
#include "kv/evict/eviction_clock.hpp"
#include "kv/evict/eviction_totals.hpp"
#include "kv/evict/layer_decision.hpp"
#include "kv/evict/rerotation.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace keel {

// The data with which the log names a sequence.
struct SequenceStamp {
    uint64_t number = 0; // number among the sequences of the setup
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

// Decides and performs the evictions of a sequence, one at a time: divides the budget, asks the
// policy about each layer, compacts the cache. Everything is decided before any slot moves. So if a
// policy fails, the cache does not change. Not thread-safe.
class Eviction {
  public:
    // The sequence from which slots are evicted.
    struct Sequence {
        KvCache &cache;
        PolicyInputs &inputs;
        ProtectedTokens &tokens;
        const EvictionClock &clock;
        Rerotation *rerotation; // NULL: keys keep their positions
        EvictionTotals &totals;
        const SequenceStamp &stamp;
        int64_t seen;  // tokens since the start
        int64_t &tail; // number of the newest tokens that are in all heads
        // For KEEL_NEED_REPLAY: lets the model repeat its context, and computes the scores for the
        // policy. Returns false if the user cancelled this; then nothing is evicted.
        std::function<bool()> repeat_context;
    };

    // `setup` must stay valid, and its policy must be one that evicts.
    Eviction(PolicySetup &setup, uint64_t seed);

    // Runs one eviction. Returns false if there was nothing to evict, or if repeat_context()
    // returned false. Throws Error(plugin) if the policy or the allocator fails, and
    // Error(resource) if shared blocks cannot be copied.
    bool run(const Firing &firing, const Sequence &sequence);
    // One record for each layer from which slots were evicted. Valid until the next run().
    std::span<const EvictionRecord> records() const { return records_; }

    // The state of the sequence's policy.
    PolicyState &policy() { return *policy_; }
    // reseed() resets the policy's state, with another seed. fork_policy() copies the state of the
    // policy of another sequence.
    void reseed(uint64_t seed);
    void fork_policy(const Eviction &parent) { policy_ = parent.policy_->fork(); }
    // Takes over policy and allocator of a sequence that moves to another device.
    void take_over(Eviction &other);

    // Bytes of the arrays for deciding evictions.
    uint64_t bytes() const;
    // Returns an estimate of bytes() if the cache holds `held` slots per head. Allocates no memory.
    static uint64_t bytes(const PolicySetup &setup, int64_t held);
    void release(); // frees the arrays that bytes() counts

  private:
    using Clock = std::chrono::steady_clock;

    bool has_excess(const Firing &firing, const KvCache &cache) const;
    bool needs_rule(const Firing &firing, const Sequence &sequence) const;
    void decide(const Firing &firing, const Sequence &sequence, int64_t stride);
    EvictionRecord first_record(const Firing &firing, const Sequence &sequence) const;
    void read_layer(uint32_t layer, const EvictionRecord &common);
    LayerDecision &decision(uint32_t layer);
    double ask(uint32_t layer, const Firing &firing, const Sequence &sequence, int64_t stride);
    void compact(const Firing &firing, const Sequence &sequence);
    void record(double microseconds, const Sequence &sequence);

    PolicySetup &setup_;
    std::unique_ptr<PolicyState> policy_;
    BudgetShares shares_;
    bool by_rule_ = false;   // the rule of key_rule.hpp decides, not the policy
    bool by_scores_ = false; // the allocator uses scores
    // one decision for all layers in turn; one for each layer if the allocator uses scores
    std::vector<LayerDecision> decisions_;
    std::vector<double> asked_microseconds_; // [layers]; 0 if the allocator does not use scores
    std::vector<KeepLists> keep_;            // [layers]
    std::vector<EvictionRecord> records_;
};

} // namespace keel
