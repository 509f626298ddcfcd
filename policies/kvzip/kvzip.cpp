// KVzip (arXiv 2505.23416) keeps the slots to which the model attends while it repeats the context.
#include <keel/sdk_policy.hpp>

namespace {

using namespace keel::sdk;

constexpr const char *modes[] = {"none", "kvpress", nullptr};

class KvZip {
  public:
    static constexpr PluginInfo info = {
        "kvzip", "0.1.0", "Keel", "MIT",
        "Keeps the slots that receive most attention while the model repeats the context."};
    static constexpr keel_param_spec params[] = {
        KEEL_INT_PARAM("chunk", "2048", 1, 1048576,
                       "tokens of the context that are repeated at a time"),
        KEEL_INT_PARAM(
            "lead", "8", 0, 4096,
            "last tokens of the chunk before, with which each repetition but the first begins"),
        KEEL_INT_PARAM("sinks", "4", 0, 65536,
                       "first tokens that stay, and that every repetition sees"),
        KEEL_CHOICE_PARAM("compat", "none", modes,
                          "kvpress: the model is asked to repeat its context in the words of "
                          "kvpress 0.5.5")};

    KvZip(const Setup &setup, keel_policy_needs &needs) : sinks_(setup.params.integer("sinks")) {
        needs.needs = KEEL_NEED_REPLAY;
        needs.granularity = KEEL_KEEP_HEAD_RAGGED;
        needs.flags = KEEL_POLICY_COMPARABLE | KEEL_POLICY_PREFILL_ONLY;
        if (setup.params.is("compat", "kvpress")) needs.flags |= KEEL_POLICY_KVPRESS_WORDS;
        needs.reduce_queries = KEEL_REDUCE_MAX;
        needs.reduce_group = KEEL_REDUCE_MAX;
        needs.replay_chunk = static_cast<uint32_t>(setup.params.integer("chunk"));
        needs.replay_lead = static_cast<uint32_t>(setup.params.integer("lead"));
        needs.replay_sinks = static_cast<uint32_t>(sinks_);
        needs.least_budget = needs.replay_sinks + 1;
    }

    void decide(const PolicyInput &in, PolicyDecision &out) {
        for (uint32_t h = 0; h < in.kv_heads(); ++h) {
            std::copy_n(in.scores(h), in.length(h), out.scores(h));
            out.stay_first(h, sinks_);
        }
    }

  private:
    int64_t sinks_;
};

} // namespace

KEEL_POLICY_PLUGIN(KvZip)
