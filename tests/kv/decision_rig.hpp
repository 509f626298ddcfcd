#pragma once

#include "kv/evict/layer_decision.hpp"
#include "kv/rig.hpp"
#include "kv/scripted_policy.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace keel::test {

// A cache of two layers with two KV heads, and the parts that an eviction needs, without a
// CacheManager. The policy scores each slot with `score(layer, head, slot)`.
struct DecisionRig {
    using Score = std::function<float(uint32_t layer, uint32_t head, int32_t slot)>;

    static KvShape shape() {
        KvShape s = kv_shape(64, KEEL_DTYPE_F32);
        s.heads = s.kv_heads = 2;
        return s;
    }
    static Script scored(keel_granularity granularity, Score score, int32_t stay = 0) {
        Script script;
        script.needs.granularity = granularity;
        script.needs.output = KEEL_OUTPUT_SCORES;
        script.needs.flags = KEEL_POLICY_COMPARABLE;
        const bool shared = granularity == KEEL_KEEP_LAYER || granularity == KEEL_KEEP_TOKEN;
        script.decide = [=](const keel_policy_input &in, keel_policy_decision &out) {
            for (uint32_t h = 0; h < (shared ? 1 : in.kv_heads); ++h) {
                for (int32_t s = 0; s < in.lengths[h]; ++s) {
                    out.scores[h * in.stride + s] = score(in.layer, h, s);
                    out.stay[h * in.stride + s] = s < stay ? 1 : 0;
                }
            }
            return KEEL_OK;
        };
        return script;
    }

    // The budget is 20 slots, unless `change` sets another one. `script` must exist longer than
    // this object.
    explicit DecisionRig(Script &script, const std::function<void(CacheConfig &)> &change = {})
        : rig("reference", shape()) {
        CacheConfig config;
        config.policy = scripted(script);
        config.budget_unit = BudgetUnit::tokens;
        config.budget = 20;
        if (change) change(config);
        setup = std::make_unique<PolicySetup>(rig.executor(), shape(),
                                              rig.executor().device().host(), config);
        tokens = std::make_unique<ProtectedTokens>(*setup);
        inputs = std::make_unique<PolicyInputs>(*setup, rig.executor().placement());
        cache = rig.make_cache();
        keel_policy_needs needs;
        policy = std::make_unique<PolicyState>(setup->config().policy, setup->host()->table(),
                                               setup->geometry(), 1, needs);
    }
    void feed(int64_t n) {
        tokens->record_append(*cache, seen, n);
        rig.feed(*cache, seen, n);
        seen += n;
    }
    void ask(LayerDecision &decision, uint32_t layer, const std::vector<int32_t> &budgets) {
        decision.ask({.trigger = KEEL_TRIGGER_BUDGET,
                      .layer = layer,
                      .seen = seen,
                      .stride = cache->max_length(),
                      .budgets = budgets},
                     *cache, *tokens, *inputs, policy.get());
    }
    // Returns the keep-lists of a layer.
    KeepLists decide(uint32_t layer, const std::vector<int32_t> &budgets) {
        LayerDecision decision(*setup);
        ask(decision, layer, budgets);
        KeepLists keep;
        decision.read(budgets, keep, record);
        return keep;
    }

    Rig rig;
    std::unique_ptr<PolicySetup> setup;
    std::unique_ptr<ProtectedTokens> tokens;
    std::unique_ptr<PolicyInputs> inputs;
    std::unique_ptr<KvCache> cache;
    std::unique_ptr<PolicyState> policy;
    EvictionRecord record; // the record of the last decide()
    int64_t seen = 0;
};

} // namespace keel::test
