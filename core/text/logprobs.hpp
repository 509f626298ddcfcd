#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace keel {

// A token and the natural logarithm of its probability.
struct TokenLogprob {
    int32_t id = 0;
    double logprob = 0;
};

// What the model thought of one token of a text: before temperature, penalties and what else
// sampling does.
struct TokenLogprobs {
    TokenLogprob chosen;
    std::vector<TokenLogprob>
        top; // the most likely ones, likeliest first; ties: the lower id first
};

// Log-softmax of a row of logits, not empty, all of it finite; in double, the largest logit
// subtracted first, so that no row is too steep or too high for it.
class LogSoftmax {
  public:
    explicit LogSoftmax(std::span<const float> logits);
    double operator()(float logit) const {
        return (static_cast<double>(logit) - highest_) - log_sum_;
    }
    double log_sum_exp() const { return highest_ + log_sum_; }

  private:
    double highest_;
    double log_sum_ = 0; // of exp(logit - highest)
};

// Log-softmax of a row of logits, all of them finite, at `id` and at the `n` most likely tokens
// (fewer if there are not as many).
TokenLogprobs token_logprobs(std::span<const float> logits, int32_t id, int64_t n);

} // namespace keel
