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

// The model's probabilities for one token of a text, before temperature, penalties and other
// sampling steps.
struct TokenLogprobs {
    TokenLogprob chosen;
    // the most likely tokens, in descending order of probability; if two tokens are equal, the
    // lower id comes first
    std::vector<TokenLogprob> top;
};

// Computes the log-softmax of a row of logits. The row must not be empty, and all logits must be
// finite. The class computes in double and first subtracts the largest logit, so no row can
// overflow.
class LogSoftmax {
  public:
    explicit LogSoftmax(std::span<const float> logits);
    double operator()(float logit) const {
        return (static_cast<double>(logit) - highest_) - log_sum_;
    }
    double log_sum_exp() const { return highest_ + log_sum_; }

  private:
    double highest_;
    double log_sum_ = 0; // log of the sum of exp(logit - highest)
};

// Computes the log-softmax of a row of finite logits. Returns it for the token `id` and for the `n`
// most likely tokens. If the row has fewer than `n` tokens, returns it for all tokens.
TokenLogprobs token_logprobs(std::span<const float> logits, int32_t id, int64_t n);

} // namespace keel
