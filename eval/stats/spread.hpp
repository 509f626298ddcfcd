#pragma once

#include <vector>

namespace keel {

// Repeated measurements of one quantity. `deviation` is the median distance of the measurements
// from the median of the measurements. A single disturbed measurement hardly changes the median or
// the deviation.
struct Spread {
    double median = 0, deviation = 0, min = 0, max = 0;
    std::vector<double> samples; // in the order of measurement

    static Spread of(std::vector<double> samples); // all numbers are 0 if there are no samples
};

} // namespace keel
