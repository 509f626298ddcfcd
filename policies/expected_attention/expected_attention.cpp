// Expected Attention (arXiv 2510.00636) keeps the slots to which future queries will probably
// attend. It assumes that future queries have the same normal distribution as the queries so far,
// and rotates this distribution to the next positions.
#include "quadratic.hpp"

#include <keel/sdk_policy.hpp>

namespace {

using namespace keel::sdk;

class ExpectedAttention {
  public:
    static constexpr PluginInfo info = {"expected_attention", "0.1.0", "Keel", "MIT",
                                        "Keeps the slots that future queries, distributed like "
                                        "those so far, are expected to attend to."};
    static constexpr keel_param_spec params[] = {
        KEEL_INT_PARAM("n_future", "512", 1, 1048576,
                       "positions after the text over which future queries are averaged"),
        KEEL_INT_PARAM("sinks", "4", 0, 65536,
                       "first tokens that stay; their queries are not counted and they take no "
                       "part in the softmax"),
        KEEL_BOOL_PARAM("covariance", "true",
                        "count the queries' covariance, not their mean alone"),
        KEEL_BOOL_PARAM("value_norms", "true",
                        "weigh the expected attention with the value's L2 norm"),
        KEEL_FLOAT_PARAM(
            "epsilon", "0.005", 0, 1,
            "added to the expected attention before it is weighed with the value's norm")};

    ExpectedAttention(const Setup &setup, keel_policy_needs &needs)
        : host_(setup.host), dim_(setup.geometry.head_dim), rot_(setup.geometry.rot),
          mode_(setup.geometry.rope_mode), scale_(setup.geometry.attention_scale),
          rope_factor_(setup.geometry.rope_factor > 0 ? setup.geometry.rope_factor : 1),
          n_future_(setup.params.integer("n_future")), sinks_(setup.params.integer("sinks")),
          covariance_(setup.params.flag("covariance")),
          value_norms_(setup.params.flag("value_norms")), epsilon_(setup.params.number("epsilon")) {
        if (setup.geometry.rope_frequencies == nullptr || rot_ == 0 || rot_ > dim_)
            throw Failure(KEEL_E_UNSUPPORTED,
                          "needs the same RoPE in all layers, but the layers of this model have "
                          "different RoPE settings, or the host does not report the settings");
        frequencies_.assign(setup.geometry.rope_frequencies,
                            setup.geometry.rope_frequencies + rot_ / 2);
        needs.needs =
            KEEL_NEED_KEYS | KEEL_NEED_QUERY_STATS | (value_norms_ ? KEEL_NEED_VALUE_NORMS : 0);
        // If scores are multiplied by value norms, they are not probabilities. Then heads cannot be
        // compared.
        if (!value_norms_) needs.flags |= KEEL_POLICY_COMPARABLE;
        needs.skip_queries = static_cast<uint32_t>(sinks_);
        needs.least_budget = needs.skip_queries + 1;
    }

    void decide(const PolicyInput &in, PolicyDecision &out) {
        const std::vector<Turn> turns = mean_turns(in.next_position());
        for_each_head(host_, in.kv_heads(),
                      [&](uint32_t h) { score_head(in, h, turns, out.scores(h)); });
        for (uint32_t h = 0; h < in.kv_heads(); ++h) out.stay_first(h, sinks_);
    }

  private:
    // The mean of the RoPE rotations of one pair of elements over the next positions. The mean also
    // makes the pair shorter, so it is not a rotation.
    struct Turn {
        uint32_t a, b;
        double cos, sin;
    };

    std::vector<Turn> mean_turns(int64_t next) const {
        std::vector<Turn> turns(frequencies_.size());
        const auto half = static_cast<uint32_t>(turns.size());
        for (uint32_t i = 0; i < half; ++i) {
            Turn &turn = turns[i];
            const bool split = mode_ == KEEL_ROPE_HALF_SPLIT;
            turn = {split ? i : 2 * i, split ? i + half : 2 * i + 1, 0, 0};
            // Computes the sum of cos and sin over evenly spaced angles with a closed formula.
            const double n = static_cast<double>(n_future_), half_step = frequencies_[i] / 2;
            const double one = std::sin(half_step);
            const double shrink = one == 0 ? 1.0 : std::sin(n * half_step) / (n * one);
            const double middle = (2 * static_cast<double>(next) + n - 1) * half_step;
            turn.cos = rope_factor_ * shrink * std::cos(middle);
            turn.sin = rope_factor_ * shrink * std::sin(middle);
        }
        return turns;
    }

    // Applies the mean rotation to x. The two elements of a pair are `step` apart.
    static void turn(double *x, size_t step, const std::vector<Turn> &turns) {
        for (const Turn &t : turns) {
            const double a = x[t.a * step], b = x[t.b * step];
            x[t.a * step] = a * t.cos - b * t.sin;
            x[t.b * step] = b * t.cos + a * t.sin;
        }
    }

    // Returns the quadratic form of one query head. The logit of a key k is b.k + k'Mk, with a
    // symmetric matrix M.
    QuadraticForm form_of(const PolicyInput &in, uint32_t head,
                          const std::vector<Turn> &turns) const {
        const size_t d = dim_;
        const double n = static_cast<double>(std::max<int64_t>(1, in.query_count()));
        const float *sum = in.query_sum(head, dim_), *second = in.query_second(head, dim_);
        std::vector<double> mean(sum, sum + d), moment(covariance_ ? d * d : 0);
        for (double &m : mean) m /= n;
        for (size_t i = 0; i < moment.size(); ++i)
            moment[i] = second[i] / n - mean[i / d] * mean[i % d];
        turn(mean.data(), 1, turns);
        if (covariance_) { // computes R S R' (S: covariance, R: mean rotation)
            for (size_t row = 0; row < d; ++row) turn(moment.data() + row * d, 1, turns);
            for (size_t column = 0; column < d; ++column) turn(moment.data() + column, d, turns);
        }
        const double scale = scale_;
        for (double &m : mean) m *= scale;
        for (double &m : moment) m *= scale * scale / 2;
        return {dim_, mean, moment};
    }

    void score_head(const PolicyInput &in, uint32_t h, const std::vector<Turn> &turns,
                    float *scores) const {
        const int64_t length = in.length(h), first = std::min(sinks_, length), n = length - first;
        std::fill_n(scores, length, 0.0f);
        if (n == 0) return;
        const uint32_t group = in.group();
        std::vector<QuadraticForm> forms;
        for (uint32_t g = 0; g < group; ++g) forms.push_back(form_of(in, h * group + g, turns));
        std::vector<std::vector<float>> logits(group, std::vector<float>(static_cast<size_t>(n)));
        KeyBlock block(dim_);
        const float *keys = in.keys(h, dim_) + first * dim_;
        for (int64_t slot = 0; slot < n; slot += KeyBlock::lanes) {
            const int64_t count = std::min<int64_t>(KeyBlock::lanes, n - slot);
            block.take(keys + slot * dim_, count);
            for (uint32_t g = 0; g < group; ++g)
                forms[g].evaluate(block, logits[g].data() + slot, count);
        }
        std::vector<double> weights(static_cast<size_t>(n));
        for (const auto &row : logits) { // averages the softmax over the query heads
            const double largest = *std::max_element(row.begin(), row.end());
            std::vector<double> terms(row.size());
            double sum = 0;
            for (size_t i = 0; i < row.size(); ++i) sum += terms[i] = std::exp(row[i] - largest);
            for (size_t i = 0; i < row.size(); ++i) weights[i] += terms[i] / (sum * group);
        }
        const float *norms = value_norms_ ? in.value_norms(h) + first : nullptr;
        for (int64_t i = 0; i < n; ++i) {
            const double weight = weights[static_cast<size_t>(i)];
            scores[first + i] =
                static_cast<float>(value_norms_ ? (weight + epsilon_) * norms[i] : weight);
        }
    }

    const keel_host *host_;
    uint32_t dim_, rot_;
    keel_rope_mode mode_;
    float scale_;
    double rope_factor_;
    int64_t n_future_, sinks_;
    bool covariance_, value_norms_;
    double epsilon_;
    std::vector<double> frequencies_; // [rot / 2], radians per position
};

} // namespace

KEEL_POLICY_PLUGIN(ExpectedAttention)
