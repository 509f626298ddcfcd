#pragma once

#include <vector>

namespace keel {

// Repeated measurements of one quantity, with their median and the median distance from it. A
// single disturbed repeat changes neither much.
struct Spread {
    double median = 0, deviation = 0, min = 0, max = 0;
    std::vector<double> samples; // in the order of measurement

    static Spread of(std::vector<double> samples); // all 0 without samples
};

} // namespace keel
