#pragma once

#include <cstdint>
#include <span>

namespace keel {

// Numbers about rows of logits, in float64. A row is not empty and its values are finite.

// The natural logarithm of the probability that a row gives a token.
double log_probability(std::span<const float> row, int32_t id);
// The place of the largest value, the lowest of equal ones.
int32_t most_likely(std::span<const float> row);

// One row against the same row of a reference.
struct RowDifference {
    double kl = 0;        // KL(reference || row), nats, not below 0
    double log_p = 0;     // of the true token, by the row
    double log_p_ref = 0; // and by the reference
    bool same_top = false;
};
RowDifference compare_rows(std::span<const float> row, std::span<const float> reference,
                           int32_t truth);

} // namespace keel
