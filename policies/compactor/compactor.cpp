// Compactor (arXiv 2507.08143) keeps two kinds of slots. Slots of the first kind have keys that
// differ from the other keys (they have a high leverage score). Slots of the second kind get
// attention from queries in their own piece of the prompt.
#include "leverage.hpp"

#include <keel/sdk_policy.hpp>

namespace {

using namespace keel::sdk;

// Returns a random number with a standard normal distribution (Box-Muller). It depends only on seed
// and index.
double gaussian(uint64_t seed, uint64_t index) {
    const auto uniform = [](uint64_t bits) {
        return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
    };
    const double radius = std::sqrt(-2 * std::log(uniform(mix(seed ^ mix(2 * index)))));
    return radius * std::cos(6.283185307179586 * uniform(mix(seed ^ mix(2 * index + 1))));
}

constexpr const char *modes[] = {"none", "kvpress", nullptr};

class Compactor {
  public:
    static constexpr PluginInfo info = {
        "compactor", "0.1.0", "Keel", "MIT",
        "Keeps keys that stand out from the others (leverage) and slots that "
        "their own piece of the prompt attends to."};
    static constexpr keel_param_spec params[] = {
        KEEL_INT_PARAM(
            "sketch", "48", 1, 1024,
            "columns of the random sketch of the keys; at most the head's dimension is used"),
        KEEL_INT_PARAM("chunk", "256", 1, 1048576,
                       "tokens of a piece within which attention is counted, not causal"),
        KEEL_FLOAT_PARAM("blend", "-1", -1, 1000,
                         "weight of the leverage against the attention; below 0: the share of "
                         "slots that has to go"),
        KEEL_INT_PARAM("sinks", "8", 0, 65536, "first tokens that stay"),
        KEEL_INT_PARAM("tail", "4", 0, 65536, "last tokens that stay"),
        KEEL_CHOICE_PARAM("compat", "none", modes,
                          "kvpress is refused: its scores count padding, which a policy cannot "
                          "compute")};

    Compactor(const Setup &setup, keel_policy_needs &needs)
        : host_(setup.host), cols_(static_cast<uint32_t>(std::min<int64_t>(
                                 setup.params.integer("sketch"), setup.geometry.head_dim))),
          blend_(setup.params.number("blend")), sinks_(setup.params.integer("sinks")),
          tail_(setup.params.integer("tail")) {
        if (setup.params.is("compat", "kvpress"))
            throw Failure(KEEL_E_UNSUPPORTED,
                          "compat: kvpress is not supported by this policy: kvpress fills up the "
                          "last piece with zero keys, and their scores need queries, which a "
                          "policy does not get; remove compat");
        projection_.resize(size_t{setup.geometry.head_dim} * cols_);
        for (size_t i = 0; i < projection_.size(); ++i)
            projection_[i] = static_cast<float>(gaussian(mix(setup.seed), i) /
                                                std::sqrt(static_cast<double>(cols_)));
        needs.needs = KEEL_NEED_KEY_PROJECT | KEEL_NEED_UNROTATED | KEEL_NEED_CHUNK_SCORES |
                      KEEL_NEED_VALUE_NORMS;
        needs.flags = KEEL_POLICY_PREFILL_ONLY | KEEL_POLICY_SEEDED;
        needs.reduce_queries = KEEL_REDUCE_SUM;
        needs.reduce_group = KEEL_REDUCE_MEAN;
        needs.projection = projection_.data();
        needs.projection_cols = cols_;
        needs.chunk = static_cast<uint32_t>(setup.params.integer("chunk"));
        needs.least_budget = static_cast<uint32_t>(sinks_ + tail_) + 1;
    }

    void decide(const PolicyInput &in, PolicyDecision &out) {
        std::vector<std::vector<double>> leverage(in.kv_heads()), attention(in.kv_heads());
        int64_t held = 0, kept = 0;
        for (uint32_t h = 0; h < in.kv_heads(); ++h) {
            held += in.length(h);
            kept += std::min(in.length(h), in.budget(h));
        }
        for_each_head(host_, in.kv_heads(), [&](uint32_t h) {
            const int64_t length = in.length(h), first = std::min(sinks_, length),
                          last = std::max(first, length - tail_);
            leverage[h] =
                leverage_of(in.key_project(h, cols_) + first * cols_, last - first, cols_);
            attention[h] = attention_of(in, h, first, last);
        });
        normalize(leverage);
        normalize(attention);
        const double blend = blend_ >= 0 || held == 0
                                 ? std::max(0.0, blend_)
                                 : 1 - static_cast<double>(kept) / static_cast<double>(held);
        for (uint32_t h = 0; h < in.kv_heads(); ++h) {
            const int64_t length = in.length(h), first = std::min(sinks_, length),
                          last = std::max(first, length - tail_);
            float *scores = out.scores(h);
            std::fill_n(scores, length, 0.0f);
            for (int64_t i = 0; i < last - first; ++i) {
                const auto at = static_cast<size_t>(i);
                scores[first + i] = static_cast<float>(blend * leverage[h][at] + attention[h][at]);
            }
            out.stay_first(h, sinks_);
            out.stay_last(h, tail_);
        }
    }

  private:
    // Returns attention times the norm of the value, averaged over each slot and its two
    // neighbours. Neighbours before the first slot and after the last slot count as zero.
    static std::vector<double> attention_of(const PolicyInput &in, uint32_t h, int64_t first,
                                            int64_t last) {
        const float *sums = in.chunk_scores(h), *norms = in.value_norms(h);
        const auto weighed = [&](int64_t t) {
            return t < first || t >= last ? 0.0 : static_cast<double>(sums[t]) * norms[t];
        };
        std::vector<double> out;
        for (int64_t t = first; t < last; ++t)
            out.push_back((weighed(t - 1) + weighed(t) + weighed(t + 1)) / 3);
        return out;
    }

    // Scales the scores to mean 0 and standard deviation 1 over all heads of the layer.
    static void normalize(std::vector<std::vector<double>> &rows) {
        double n = 0, mean = 0, square = 0;
        for (const auto &row : rows)
            for (const double x : row) n += 1, mean += x;
        mean /= std::max(n, 1.0);
        for (const auto &row : rows)
            for (const double x : row) square += (x - mean) * (x - mean);
        const double deviation = std::max(1e-6, std::sqrt(square / std::max(n - 1, 1.0)));
        for (auto &row : rows)
            for (double &x : row) x = (x - mean) / deviation;
    }

    const keel_host *host_;
    uint32_t cols_;
    double blend_;
    int64_t sinks_, tail_;
    std::vector<float> projection_; // [head_dim, cols]
};

} // namespace

KEEL_POLICY_PLUGIN(Compactor)
