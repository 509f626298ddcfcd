#pragma once

#include "kv/evict/layer_decision.hpp"
#include "kv/evict/plugin_state.hpp"
#include "kv/evict/policy_setup.hpp"
#include "kv/evict/protected_tokens.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace keel {

// Divides a budget over all heads of all layers: in equal parts, or with the config's allocator.
// Not thread-safe.
class BudgetShares {
  public:
    // `setup` must stay valid.
    explicit BudgetShares(const PolicySetup &setup);

    // `target`: slots per head on average.
    void share_evenly(int64_t target);
    // Divides the budget with the allocator, or evenly if there is no allocator.
    void share(int64_t target, const KvCache &cache, const ProtectedTokens &tokens);
    // Divides the budget with an allocator that uses the policy's scores. `layers`: the answers of
    // all layers.
    void share_by_scores(int64_t target, const KvCache &cache, const ProtectedTokens &tokens,
                         std::span<LayerDecision> layers);

    // Returns the shares of the heads of a layer, [kv_heads].
    std::span<const int32_t> of_layer(uint32_t layer) const;
    // Returns true if any head holds more slots than its share.
    bool any_above(const KvCache &cache) const;
    // Takes over the allocator of a sequence that moves to another device.
    void take_over(BudgetShares &other) { allocator_ = std::move(other.allocator_); }

  private:
    void ask(keel_allocator_input &input, const KvCache &cache, const ProtectedTokens &tokens);
    void check_agreement() const;

    const PolicySetup &setup_;
    std::unique_ptr<AllocatorState> allocator_; // NULL: the same budget for all heads
    std::vector<int32_t> budgets_, lengths_;    // [layers, kv_heads]
    std::vector<const float *> score_rows_;     // [layers], for the allocator
    std::vector<const uint8_t *> mask_rows_;    // [layers], for the allocator
};

} // namespace keel
