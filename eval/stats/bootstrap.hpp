#pragma once

#include <cstddef>
#include <vector>

namespace keel {

// Computes a statistic for many resamples and returns its values. Each resample draws `count`
// clusters out of `count`, with replacement. below(n) must return a random number from 0 to n - 1.
// statistic(drawn) gets the indices of the drawn clusters.
template <typename Below, typename Statistic>
std::vector<double> bootstrap(size_t count, size_t resamples, const Below &below,
                              const Statistic &statistic) {
    std::vector<double> values(resamples);
    std::vector<size_t> drawn(count);
    for (double &value : values) {
        for (size_t &index : drawn) index = below(count);
        value = statistic(drawn);
    }
    return values;
}

} // namespace keel
