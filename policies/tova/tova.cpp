// TOVA (arXiv 2401.06104) keeps the slots to which the last query attends. All heads of a layer
// keep the same slots.
#include <keel/sdk_policy.hpp>

namespace {

using namespace keel::sdk;

class Tova {
  public:
    static constexpr PluginInfo info = {
        "tova", "0.1.0", "Keel", "MIT",
        "Keeps the slots that the last query attends to most, on average over all heads."};
    static constexpr keel_param_spec params[] = {
        KEEL_BOOL_PARAM("keep_newest", "true",
                        "the newest token stays whatever attention it received"),
        KEEL_BOOL_PARAM("blockwise", "false",
                        "true: also acts between the chunks of a prompt, which caps its memory")};

    Tova(const Setup &setup, keel_policy_needs &needs)
        : keep_newest_(setup.params.flag("keep_newest")) {
        needs.needs = KEEL_NEED_WINDOW_SCORES;
        needs.granularity = KEEL_KEEP_LAYER;
        needs.flags = KEEL_POLICY_COMPARABLE;
        if (setup.params.flag("blockwise")) needs.flags |= KEEL_POLICY_BLOCKWISE;
        needs.window = 1;
        // the window has one query, so the mean is this query's attention
        needs.reduce_queries = KEEL_REDUCE_MEAN;
        needs.reduce_group = KEEL_REDUCE_MEAN;
    }

    void decide(const PolicyInput &in, PolicyDecision &out) {
        const int32_t length = in.length(0); // all heads of a layer hold the same slots
        float *scores = out.scores(0);
        std::fill_n(scores, length, 0.0f);
        for (uint32_t h = 0; h < in.kv_heads(); ++h) {
            const float *row = in.scores(h);
            for (int32_t slot = 0; slot < std::min(length, in.length(h)); ++slot)
                scores[slot] += row[slot] / static_cast<float>(in.kv_heads());
        }
        if (keep_newest_) out.stay_last(0, 1);
    }

  private:
    bool keep_newest_;
};

} // namespace

KEEL_POLICY_PLUGIN(Tova)
