#pragma once

#include "kv/rig.hpp"
#include "kv/scripted_policy.hpp"

#include <numeric>

namespace keel::test {

// A CacheManager of a rig. The test feeds it step by step. The policy is the one in the config.
struct ManagerRun {
    ManagerRun(const std::string &device, const KvShape &shape, const CacheConfig &config)
        : rig(device, shape, config.rope_frequencies) {
        plan = std::make_unique<PolicySetup>(rig.executor(), shape, rig.executor().device().host(),
                                             config);
        manager = std::make_unique<CacheManager>(*plan, rig.executor().placement());
    }
    std::vector<EvictionRecord> step(int64_t n, StepKind kind) {
        const auto before = manager->before_append(n, kind);
        std::vector<EvictionRecord> records(before.begin(), before.end());
        std::vector<int64_t> tokens(static_cast<size_t>(n));
        std::iota(tokens.begin(), tokens.end(), manager->tokens_seen());
        const auto next = manager->next_positions(n);
        const std::vector<int32_t> positions(next.begin(), next.end());
        manager->append(n);
        rig.write(manager->cache(), tokens, positions);
        const auto after = manager->after_step(kind);
        records.insert(records.end(), after.begin(), after.end());
        return records;
    }
    // Number of slots of all heads together.
    int64_t held() const {
        int64_t sum = 0;
        for (uint32_t l = 0; l < plan->shape().layers; ++l) {
            for (uint32_t h = 0; h < plan->shape().kv_heads; ++h)
                sum += manager->cache().length(l, h);
        }
        return sum;
    }

    Rig rig;
    std::unique_ptr<PolicySetup> plan;
    std::unique_ptr<CacheManager> manager;
};

// Returns a policy that scores slots by their number, so the newest slots have the highest scores.
inline Script newest_are_best(uint32_t flags = KEEL_POLICY_BLOCKWISE) {
    Script script;
    script.needs.granularity = KEEL_KEEP_HEAD_EQUAL;
    script.needs.output = KEEL_OUTPUT_SCORES;
    script.needs.flags = flags;
    script.decide = [](const keel_policy_input &in, keel_policy_decision &out) {
        for (uint32_t h = 0; h < in.kv_heads; ++h) {
            for (int32_t s = 0; s < in.lengths[h]; ++s)
                out.scores[h * in.stride + s] = static_cast<float>(s);
        }
        return KEEL_OK;
    };
    return script;
}

} // namespace keel::test
