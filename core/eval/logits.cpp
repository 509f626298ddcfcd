#include "eval/logits.hpp"

#include "pipeline/logprobs.hpp"

#include <algorithm>
#include <cmath>

namespace keel {

int32_t most_likely(std::span<const float> row) {
    return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

double log_probability(std::span<const float> row, int32_t id) {
    return static_cast<double>(row[static_cast<size_t>(id)]) - log_sum_exp(row);
}

RowDifference compare_rows(std::span<const float> row, std::span<const float> reference, int32_t truth) {
    const double norm = log_sum_exp(row), norm_ref = log_sum_exp(reference);
    double kl = 0;
    for (size_t i = 0; i < row.size(); ++i) {
        const double p = static_cast<double>(row[i]) - norm, q = static_cast<double>(reference[i]) - norm_ref;
        kl += std::exp(q) * (q - p);
    }
    RowDifference d;
    d.kl = std::max(kl, 0.0); // rounding may leave -1e-17
    d.log_p = static_cast<double>(row[static_cast<size_t>(truth)]) - norm;
    d.log_p_ref = static_cast<double>(reference[static_cast<size_t>(truth)]) - norm_ref;
    d.same_top = most_likely(row) == most_likely(reference);
    return d;
}

} // namespace keel
