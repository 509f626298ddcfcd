#include "text/logprobs.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace keel {

LogSoftmax::LogSoftmax(std::span<const float> logits)
    : highest_(*std::max_element(logits.begin(), logits.end())) {
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - highest_);
    log_sum_ = std::log(sum);
}

TokenLogprobs token_logprobs(std::span<const float> logits, int32_t id, int64_t n) {
    const LogSoftmax log_softmax(logits);
    const auto of = [&](int32_t token) {
        return TokenLogprob{token, log_softmax(logits[static_cast<size_t>(token)])};
    };
    TokenLogprobs result;
    result.chosen = of(id);
    if (n <= 0) return result;
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    const auto count = std::min<std::ptrdiff_t>(n, std::ssize(order));
    std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int32_t a, int32_t b) {
        const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
        return x != y ? x > y : a < b;
    });
    for (std::ptrdiff_t i = 0; i < count; ++i)
        result.top.push_back(of(order[static_cast<size_t>(i)]));
    return result;
}

} // namespace keel
