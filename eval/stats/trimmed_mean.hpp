#pragma once

#include <optional>
#include <vector>

namespace keel {

// A trimmed mean: a fifth of the numbers is left out at each end (none for fewer than five
// numbers). So a disturbed number changes it little. Its inference is that of Yuen (1974) for one
// sample: Student's t with the winsorized spread, and with the degrees of freedom of the remaining
// numbers.
struct TrimmedMean {
    double mean = 0;
    std::optional<double> error; // nothing for fewer than two numbers
    double freedom = 0;

    // Throws Error(runtime) for a number that is not finite.
    static TrimmedMean of(std::vector<double> values);
};

} // namespace keel
