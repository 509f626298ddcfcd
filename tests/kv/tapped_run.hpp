#pragma once

#include "kv/rig.hpp"
#include "kv/scripted_policy.hpp"

#include <map>

namespace keel::test {

// A cache manager whose steps have queries: what a model's graph does for a policy, with made-up
// tokens. Keeps all queries and, per layer and KV head, what every token was paid attention by all
// queries so far, in float64.
class TappedRun {
  public:
    TappedRun(const std::string &device, const KvShape &shape, const CacheConfig &config,
              const Collected &also = {});

    // Returns what was evicted after the step.
    std::vector<EvictionRecord> step(int64_t n, StepKind kind);
    void run_layers(StepTap *tap, uint32_t m, const std::vector<int64_t> &tokens,
                    const std::vector<int32_t> &positions, CacheManager &of);

    // Probabilities of a token's query among the listed slots of a layer, [heads][slot], in float64
    // from the keys as the cache holds them. `slots` per KV head; the others get 0.
    std::vector<std::vector<double>> probabilities(CacheManager &of, uint32_t layer,
                                                   std::span<const float> query,
                                                   const std::vector<std::vector<bool>> &visible);
    std::vector<float> query(int64_t token) const { return rig.tokens().query(token, token); }
    // [kv_heads][token]: attention so far, summed over queries, reduced over the group by mean.
    const std::map<int64_t, double> &paid(uint32_t layer, uint32_t head) const {
        return paid_[layer * shape.kv_heads + head];
    }

    KvShape shape;
    Rig rig;
    std::unique_ptr<PolicySetup> plan;
    std::unique_ptr<CacheManager> manager;

  private:
    void note_paid(const std::vector<int64_t> &tokens);

    OpHandle attention_;
    std::vector<std::map<int64_t, double>> paid_;
};

// Reductions as the ops define them.
double reduce(keel_reduce how, const std::vector<double> &values);

} // namespace keel::test
