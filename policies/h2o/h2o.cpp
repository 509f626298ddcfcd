// H2O (arXiv 2306.14048) keeps the newest slots and the heavy hitters. Heavy hitters are the slots
// that received the most attention since they were added.
#include <keel/sdk_policy.hpp>

namespace {

using namespace keel::sdk;

constexpr const char *weighings[] = {"sum", "mean", nullptr};

class HeavyHitters {
  public:
    static constexpr PluginInfo info = {
        "h2o", "0.1.0", "Keel", "MIT",
        "Keeps the slots that received most attention so far (heavy hitters) and the newest ones."};
    static constexpr keel_param_spec params[] = {
        KEEL_CHOICE_PARAM("score", "sum", weighings,
                          "sum: all attention that a slot received; mean: that divided by the "
                          "queries that could see it"),
        KEEL_FLOAT_PARAM("recent_share", "0.5", 0, 1,
                         "share of the budget that goes to the newest tokens"),
        KEEL_BOOL_PARAM("blockwise", "false",
                        "true: also acts between the chunks of a prompt, which caps its memory")};

    HeavyHitters(const Setup &setup, keel_policy_needs &needs)
        : mean_(setup.params.is("score", "mean")),
          recent_share_(setup.params.number("recent_share")) {
        needs.needs = KEEL_NEED_RUNNING_SCORES | (mean_ ? KEEL_NEED_POSITIONS : 0);
        needs.flags = KEEL_POLICY_COMPARABLE;
        if (setup.params.flag("blockwise")) needs.flags |= KEEL_POLICY_BLOCKWISE;
        needs.reduce_queries = KEEL_REDUCE_SUM;
        needs.reduce_group = KEEL_REDUCE_MEAN;
    }

    void decide(const PolicyInput &in, PolicyDecision &out) {
        for (uint32_t h = 0; h < in.kv_heads(); ++h) {
            const int64_t length = in.length(h);
            const float *sums = in.scores(h);
            float *scores = out.scores(h);
            std::copy_n(sums, length, scores);
            if (mean_) {
                const int32_t *positions = in.positions(h);
                // The divisor is at least 1, because each token attends to itself.
                for (int64_t slot = 0; slot < length; ++slot)
                    scores[slot] /= static_cast<float>(
                        std::max<int64_t>(1, in.next_position() - positions[slot]));
            }
            out.stay_last(h, static_cast<int64_t>(recent_share_ * in.budget(h)));
        }
    }

  private:
    bool mean_;
    double recent_share_;
};

} // namespace

KEEL_POLICY_PLUGIN(HeavyHitters)
