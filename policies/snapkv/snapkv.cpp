// SnapKV (arXiv 2404.14469) keeps the slots to which the last queries of the prompt attend, and the
// neighbours of these slots.
#include <keel/sdk_policy.hpp>

namespace {

using namespace keel::sdk;

constexpr const char *poolings[] = {"avg", "max", nullptr};
constexpr const char *reductions[] = {"mean", "max", "sum", "none", nullptr};

class SnapKv {
  public:
    static constexpr PluginInfo info = {
        "snapkv", "0.1.0", "Keel", "MIT",
        "Keeps what the last queries of the prompt attend to, with its "
        "neighbours, and those queries' own tokens."};
    static constexpr keel_param_spec params[] = {
        KEEL_INT_PARAM(
            "window", "16", 1, 65536,
            "observation window: last queries whose attention is read, and whose tokens stay"),
        KEEL_INT_PARAM("kernel", "7", 1, 4095,
                       "width of the pooling over neighbouring slots, odd; 1: none"),
        KEEL_CHOICE_PARAM("pool", "max", poolings, "how neighbouring slots' scores are pooled"),
        KEEL_CHOICE_PARAM("group", "mean", reductions,
                          "how the query heads of a KV head are reduced, before pooling; none: "
                          "each query head is "
                          "pooled by itself, then the mean is taken"),
        KEEL_BOOL_PARAM(
            "decode", "false",
            "false: acts once, at the end of the prompt; true: also during decode, with the last "
            "queries then")};

    SnapKv(const Setup &setup, keel_policy_needs &needs)
        : window_(setup.params.integer("window")), kernel_(setup.params.integer("kernel")),
          maximum_(setup.params.is("pool", "max")),
          per_query_head_(setup.params.is("group", "none")) {
        if (kernel_ % 2 == 0)
            throw Failure(KEEL_E_INVALID_ARG, "kernel: expected an odd number, found %lld",
                          static_cast<long long>(kernel_));
        needs.needs = KEEL_NEED_WINDOW_SCORES;
        needs.flags = KEEL_POLICY_COMPARABLE;
        if (!setup.params.flag("decode")) needs.flags |= KEEL_POLICY_PREFILL_ONLY;
        needs.window = static_cast<uint32_t>(window_);
        needs.reduce_queries = KEEL_REDUCE_MEAN;
        needs.reduce_group = setup.params.is("group", "max")   ? KEEL_REDUCE_MAX
                             : setup.params.is("group", "sum") ? KEEL_REDUCE_SUM
                             : per_query_head_                 ? KEEL_REDUCE_NONE
                                                               : KEEL_REDUCE_MEAN;
        needs.least_budget = needs.window + 1;
    }

    void decide(const PolicyInput &in, PolicyDecision &out) {
        const uint32_t rows = per_query_head_ ? in.group() : 1;
        for (uint32_t h = 0; h < in.kv_heads(); ++h) {
            const int64_t length = in.length(h), prefix = std::max<int64_t>(0, length - window_);
            float *scores = out.scores(h);
            std::fill_n(scores, length, 0.0f);
            out.stay_last(h, window_);
            for (uint32_t g = 0; g < rows; ++g) {
                const float *row = in.scores(h * rows + g);
                for (int64_t slot = 0; slot < prefix; ++slot)
                    scores[slot] += pooled(row, slot, prefix) / static_cast<float>(rows);
            }
        }
    }

  private:
    // Returns the mean or the maximum of the scores of `slot` and its neighbours before `end`. If a
    // neighbour does not exist, the mean counts it as zero, and the maximum skips it.
    float pooled(const float *row, int64_t slot, int64_t end) const {
        const int64_t first = std::max<int64_t>(0, slot - kernel_ / 2),
                      last = std::min(end, slot + kernel_ / 2 + 1);
        if (maximum_) return *std::max_element(row + first, row + last);
        return std::accumulate(row + first, row + last, 0.0f) / static_cast<float>(kernel_);
    }

    int64_t window_, kernel_;
    bool maximum_, per_query_head_;
};

} // namespace

KEEL_POLICY_PLUGIN(SnapKv)
