#include "eval/scoring/logits.hpp"

#include "text/logprobs.hpp"

#include <algorithm>
#include <cmath>

namespace keel {

int32_t most_likely(std::span<const float> row) {
    return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

double log_probability(std::span<const float> row, int32_t id) {
    return LogSoftmax(row)(row[static_cast<size_t>(id)]);
}

RowDifference compare_rows(std::span<const float> row, std::span<const float> reference,
                           int32_t truth) {
    const LogSoftmax ours(row), theirs(reference);
    double kl = 0;
    for (size_t i = 0; i < row.size(); ++i) {
        const double p = ours(row[i]), q = theirs(reference[i]);
        kl += std::exp(q) * (q - p);
    }
    RowDifference d;
    d.kl = std::max(kl, 0.0); // rounding can give a value such as -1e-17
    d.log_p = ours(row[static_cast<size_t>(truth)]);
    d.log_p_ref = theirs(reference[static_cast<size_t>(truth)]);
    d.same_top = most_likely(row) == most_likely(reference);
    return d;
}

} // namespace keel
