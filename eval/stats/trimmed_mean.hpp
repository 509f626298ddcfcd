#pragma once

#include <optional>
#include <vector>

namespace keel {

// A trimmed mean. One fifth of the numbers is left out at each end of the sorted list (nothing is
// left out of fewer than five numbers). So one disturbed number hardly changes the mean. The
// inference uses Yuen's method (1974) for one sample: Student's t with the winsorized standard
// error. `freedom` is n - 1, for n remaining numbers.
struct TrimmedMean {
    double mean = 0;
    std::optional<double> error; // standard error; nullopt for fewer than two numbers
    double freedom = 0;

    // Throws Error(runtime) for a number that is not finite.
    static TrimmedMean of(std::vector<double> values);
};

} // namespace keel
