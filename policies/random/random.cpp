// Keeps random slots. A useful policy must be better than this policy.
#include <keel/sdk_policy.hpp>

namespace {

using namespace keel::sdk;

constexpr const char *scopes[] = {"head", "layer", "token", nullptr};

class Random {
  public:
    static constexpr PluginInfo info = {
        "random", "0.1.0", "Keel", "MIT",
        "Keeps random tokens: the baseline for every other policy."};
    static constexpr keel_param_spec params[] = {
        KEEL_INT_PARAM("seed", "0", 0, 2147483647, "drawn from together with the run's seed"),
        KEEL_CHOICE_PARAM("per", "head", scopes,
                          "head: each KV head draws for itself; layer: one draw for the heads of a "
                          "layer; token: one for "
                          "the whole model")};

    Random(const Setup &setup, keel_policy_needs &needs)
        : seed_(mix(setup.seed) ^ mix(~static_cast<uint64_t>(setup.params.integer("seed")))),
          per_head_(setup.params.is("per", "head")), per_token_(setup.params.is("per", "token")) {
        needs.needs = KEEL_NEED_POSITIONS;
        needs.granularity = per_head_    ? KEEL_KEEP_HEAD_EQUAL
                            : per_token_ ? KEEL_KEEP_TOKEN
                                         : KEEL_KEEP_LAYER;
        // BLOCKWISE: the score of a token never changes, so eviction between chunks of the prompt
        // keeps the same tokens as eviction at the end. COMPARABLE: the scores of all heads have
        // the same distribution.
        needs.flags = KEEL_POLICY_BLOCKWISE | KEEL_POLICY_COMPARABLE | KEEL_POLICY_SEEDED;
    }

    void decide(const PolicyInput &in, PolicyDecision &out) {
        for (uint32_t h = 0; h < (per_head_ ? in.kv_heads() : 1); ++h) {
            const uint64_t row = mix(seed_ + (per_token_ ? 0 : uint64_t{in.layer()} << 32 | h));
            const int32_t *positions = in.positions(h);
            float *scores = out.scores(h);
            for (int32_t slot = 0; slot < in.length(h); ++slot) {
                const uint64_t lot = mix(row ^ mix(static_cast<uint64_t>(positions[slot])));
                scores[slot] = static_cast<float>(lot >> 40) * 0x1p-24f; // uniform in [0, 1)
            }
        }
    }

  private:
    uint64_t seed_;
    bool per_head_, per_token_;
};

} // namespace

KEEL_POLICY_PLUGIN(Random)
