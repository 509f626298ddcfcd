#pragma once

#include <vector>

namespace keel {

// Repeated measurements of one thing. The median and the median distance from it: one disturbed
// repeat moves neither.
struct Spread {
    double median = 0, deviation = 0, min = 0, max = 0;
    std::vector<double> samples; // in the order they came

    static Spread of(std::vector<double> samples); // zeros for none
};

} // namespace keel
