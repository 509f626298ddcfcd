#include "eval/stats/trimmed_mean.hpp"

#include "eval/stats/finite.hpp"

#include <algorithm>
#include <numeric>

namespace keel {

TrimmedMean TrimmedMean::of(std::vector<double> values) {
    check_finite(values);
    TrimmedMean out;
    const size_t n = values.size(), cut = n / 5;
    if (n == 0) return out;
    std::sort(values.begin(), values.end());
    const std::span<const double> middle(values.data() + cut, n - 2 * cut);
    const auto count = static_cast<double>(n), left = static_cast<double>(middle.size());
    out.mean = std::accumulate(middle.begin(), middle.end(), 0.0) / left;
    out.freedom = left - 1;
    if (n < 2) return out;
    // Winsorized variance: each number that was left out is replaced by the nearest number that was
    // kept.
    const auto ends = static_cast<double>(cut);
    const double total =
        std::accumulate(middle.begin(), middle.end(), ends * (middle.front() + middle.back()));
    const double centre = total / count;
    const auto square = [&](double v) { return (v - centre) * (v - centre); };
    double squares = ends * (square(middle.front()) + square(middle.back()));
    for (const double v : middle) squares += square(v);
    out.error = std::sqrt(squares / (left * (left - 1)));
    return out;
}

} // namespace keel
