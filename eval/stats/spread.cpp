#include "eval/stats/spread.hpp"

#include <algorithm>
#include <cmath>

namespace keel {
namespace {

double median_of(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

} // namespace

Spread Spread::of(std::vector<double> samples) {
    Spread s;
    s.samples = std::move(samples);
    if (s.samples.empty()) return s;
    s.median = median_of(s.samples);
    const auto [low, high] = std::minmax_element(s.samples.begin(), s.samples.end());
    s.min = *low;
    s.max = *high;
    std::vector<double> distances;
    for (const double sample : s.samples) distances.push_back(std::abs(sample - s.median));
    s.deviation = median_of(std::move(distances));
    return s;
}

} // namespace keel
