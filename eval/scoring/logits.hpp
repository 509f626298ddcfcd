#pragma once

#include <cstdint>
#include <span>

namespace keel {

// Functions on rows of logits, in float64. A row must not be empty, and its values must be finite.

// The natural logarithm of the probability of token `id`.
double log_probability(std::span<const float> row, int32_t id);
// The index of the largest value. If several values are the largest, the function returns the
// lowest index.
int32_t most_likely(std::span<const float> row);

// The difference between a row of logits and the same row of a reference.
struct RowDifference {
    double kl = 0;        // KL(reference || row), nats, not below 0
    double log_p = 0;     // log probability of the true token according to `row`
    double log_p_ref = 0; // log probability according to the reference
    bool same_top = false;
};
RowDifference compare_rows(std::span<const float> row, std::span<const float> reference,
                           int32_t truth);

} // namespace keel
