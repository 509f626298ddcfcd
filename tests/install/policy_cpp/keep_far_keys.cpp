// keep_far_keys: a KV-cache policy in C++ with <keel/sdk_policy.hpp>. It keeps the keys whose norm
// differs most from the mean norm of their head.
//
//     policy:
//       plugin: keep_far_keys
//       params: {sinks: 4}
//       budget: {tokens: 256}
#include <keel/sdk_policy.hpp>

namespace {

using namespace keel::sdk;

class KeepFarKeys {
  public:
    // The id is the file's name without .so.
    static constexpr PluginInfo info = {"keep_far_keys", "1.0.0", "An example", "MIT",
                                        "Keeps keys whose norm is far from the mean."};
    // The core checks the YAML with these parameters, and `keel plugins show` prints them.
    static constexpr keel_param_spec params[] = {
        KEEL_INT_PARAM("sinks", "4", 0, 4096, "first tokens that always stay")};

    KeepFarKeys(const Setup &setup, keel_policy_needs &needs)
        : sinks_(setup.params.integer("sinks")) {
        if (sinks_ >= setup.geometry.context)
            throw Failure(KEEL_E_INVALID_ARG, "sinks: more than the model's context");
        // The other members keep their defaults: each KV head has its own set of kept slots. The
        // slots with the highest scores stay, and of equal scores the newer slot.
        needs.needs = KEEL_NEED_KEY_NORMS; // the core computes this input and no other
        needs.least_budget = static_cast<uint32_t>(sinks_) + 1;
    }

    void decide(const PolicyInput &in, PolicyDecision &out) {
        for (uint32_t h = 0; h < in.kv_heads(); ++h) {
            const int32_t length = in.length(h);
            const float *norms = in.key_norms(h);
            const double mean = std::accumulate(norms, norms + length, 0.0) / std::max(length, 1);
            for (int32_t slot = 0; slot < length; ++slot)
                out.scores(h)[slot] = static_cast<float>(std::abs(norms[slot] - mean));
            out.stay_first(h, sinks_); // these slots stay, whatever their scores are
        }
    }

  private:
    int64_t sinks_;
};

} // namespace

KEEL_POLICY_PLUGIN(KeepFarKeys)
