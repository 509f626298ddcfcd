// KeyDiff (arXiv 2504.15364) keeps the slots whose keys point in other directions than the mean
// key.
#include <keel/sdk_policy.hpp>

namespace {

using namespace keel::sdk;

class KeyDiff {
  public:
    static constexpr PluginInfo info = {
        "keydiff", "0.1.0", "Keel", "MIT",
        "Keeps the keys that are least like the mean direction of all keys; needs no attention."};
    static constexpr keel_param_spec params[] = {
        KEEL_INT_PARAM("sinks", "4", 0, 65536, "first tokens that stay whatever their keys"),
        KEEL_BOOL_PARAM(
            "blockwise", "true",
            "true: acts between the chunks of a prompt too, which caps its memory, as in the "
            "paper; false: at its "
            "end and during decode only")};

    KeyDiff(const Setup &setup, keel_policy_needs &needs)
        : sinks_(setup.params.integer("sinks")), head_dim_(setup.geometry.head_dim) {
        needs.needs = KEEL_NEED_KEY_SUM | KEEL_NEED_KEY_ANCHOR | KEEL_NEED_KEY_NORMS;
        if (setup.params.flag("blockwise")) needs.flags |= KEEL_POLICY_BLOCKWISE;
        needs.least_budget = static_cast<uint32_t>(sinks_) + 1;
    }

    void decide(const PolicyInput &in, PolicyDecision &out) {
        for (uint32_t h = 0; h < in.kv_heads(); ++h) {
            const int64_t length = in.length(h);
            const float *sum = in.key_sum(h, head_dim_), *dots = in.key_anchor(h),
                        *norms = in.key_norms(h);
            double square = 0;
            for (uint32_t i = 0; i < head_dim_; ++i) square += static_cast<double>(sum[i]) * sum[i];
            const double anchor = std::sqrt(square);
            float *scores = out.scores(h);
            for (int64_t slot = 0; slot < length; ++slot) {
                // The cosine does not depend on the length of the mean vector. A zero vector gets
                // the score 0.
                const double both = anchor * norms[slot];
                scores[slot] = both > 0 ? static_cast<float>(-dots[slot] / both) : 0.0f;
            }
            out.stay_first(h, sinks_);
        }
    }

  private:
    int64_t sinks_;
    uint32_t head_dim_;
};

} // namespace

KEEL_POLICY_PLUGIN(KeyDiff)
