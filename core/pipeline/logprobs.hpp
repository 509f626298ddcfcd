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

// What the model thought of one token of a text: before temperature, penalties and what else sampling does.
struct TokenLogprobs {
    TokenLogprob chosen;
    std::vector<TokenLogprob> top; // the most likely ones, likeliest first; ties: the lower id first
};

// log(sum(exp(logits))) of a row, not empty, all of it finite; in double, the largest subtracted first, so that no row is too steep for it.
double log_sum_exp(std::span<const float> logits);

// Log-softmax of a row of logits, all of them finite, at `id` and at the `n` most likely tokens (fewer if there are not as many).
TokenLogprobs token_logprobs(std::span<const float> logits, int32_t id, int64_t n);

} // namespace keel
