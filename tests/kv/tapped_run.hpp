#pragma once

#include "kv/rig.hpp"
#include "kv/scripted_policy.hpp"

#include <map>

namespace keel::test {

// A CacheManager whose steps have queries. The class does for a policy what a model's graph does,
// with generated tokens. It keeps all queries. For each layer and KV head, it also keeps the
// attention that every token received from all queries so far, in float64.
class TappedRun {
  public:
    TappedRun(const std::string &device, const KvShape &shape, const CacheConfig &config,
              const Collected &also = {});

    // Returns the evictions after the step.
    std::vector<EvictionRecord> step(int64_t n, StepKind kind);
    void run_layers(StepTap *tap, uint32_t m, const std::vector<int64_t> &tokens,
                    const std::vector<int32_t> &positions, CacheManager &of);

    // Returns the probabilities of a token's query for the listed slots of a layer, [heads][slot],
    // computed in float64 from the keys in the cache. Each KV head has its own list in `slots`;
    // other slots get 0.
    std::vector<std::vector<double>> probabilities(CacheManager &of, uint32_t layer,
                                                   std::span<const float> query,
                                                   const std::vector<std::vector<bool>> &visible);
    std::vector<float> query(int64_t token) const { return rig.tokens().query(token, token); }
    // [kv_heads][token]: attention that the token received so far, summed over queries. The mean
    // over the group is used.
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

// Computes a reduction as the ops define it.
double reduce(keel_reduce how, const std::vector<double> &values);

} // namespace keel::test
