#pragma once

#include "kv/evict/keep_lists.hpp"
#include "kv/evict/plugin_state.hpp"
#include "kv/evict/policy_setup.hpp"
#include "kv/evict/protected_tokens.hpp"
#include "kv/inputs/policy_inputs.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace keel {

// The policy's input for one layer, its answer, and the keep-lists made from the answer. Arrays are
// [kv_heads, stride]. The next layer or eviction uses the same arrays. Not thread-safe.
class LayerDecision {
  public:
    // `setup` must stay valid.
    explicit LayerDecision(const PolicySetup &setup) : setup_(&setup) {}

    // The question about one layer in an eviction. `layer`: its number in this cache, from 0.
    // `budgets`: [kv_heads].
    struct Question {
        keel_trigger trigger = KEEL_TRIGGER_BUDGET;
        uint32_t layer = 0;
        int64_t seen = 0;   // tokens since the start
        int64_t stride = 0; // number of slots of the longest head of all layers
        std::span<const int32_t> budgets;
    };
    // Asks the policy about a layer. If the policy is NULL, the rule of key_rule.hpp decides.
    void ask(const Question &question, const KvCache &cache, const ProtectedTokens &tokens,
             PolicyInputs &inputs, PolicyState *policy);
    // Checks the answer and makes keep-lists from it, within the budgets [kv_heads]. (An allocator
    // can have made these budgets from the scores.) The record gets a summary of the scores.
    void read(std::span<const int32_t> budgets, KeepLists &keep, EvictionRecord &record);

    // Prepares the scores for an allocator: if heads share a row of scores, copies the row to each
    // head. Returns the largest number of slots that must stay in a head. These are the protected
    // slots and the slots that the policy always keeps.
    int64_t spread();
    const float *scores() const { return scores_.data(); }
    // flags of the slots that stay, see spread()
    const uint8_t *held() const { return held_.data(); }

    uint64_t bytes() const; // bytes of the arrays
    // Returns an estimate of bytes(). Allocates no memory. `cells`: slots of all heads of a layer.
    static uint64_t bytes(const PolicySetup &setup, uint64_t cells) {
        // The size per slot: a mask, positions, and either a score with its `stay` flag or an entry
        // of a keep-list.
        const uint64_t positions = setup.needs(KEEL_NEED_POSITIONS) ? sizeof(int32_t) : 0;
        return cells * (3 + sizeof(float) + positions);
    }

  private:
    std::string name_of(uint32_t head) const;
    void describe(const KvCache &cache, const ProtectedTokens &tokens);
    HeadBudget head_budget(uint32_t head, int32_t budget) const;
    bool has_shared_row() const;
    bool is_scored() const;

    const PolicySetup *setup_;
    uint32_t layer_ = 0;
    int64_t stride_ = 0;
    bool by_rule_ = false; // the rule of key_rule.hpp decided
    std::vector<int32_t> lengths_, positions_;
    // Flags for each slot. mask_: the slot is protected. stay_: the policy keeps the slot at any
    // score. held_: mask_ or stay_ is set.
    std::vector<uint8_t> mask_, stay_, held_;
    std::vector<float> scores_;
    std::vector<int32_t> listed_, counts_; // the keep-lists of a policy whose output is keep-lists
    std::vector<int32_t> order_;           // scratch memory of keep_best()
};

} // namespace keel
