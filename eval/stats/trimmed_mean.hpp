#pragma once

#include <optional>
#include <vector>

namespace keel {

// The mean of the middle: a fifth of the numbers is left out at each end (none below five), so that
// a disturbed one moves it little. Its inference is Yuen's (1974) for one sample: Student's t by
// the winsorized spread, with the degrees of freedom of what is left.
struct TrimmedMean {
    double mean = 0;
    std::optional<double> error; // standard error; nothing for fewer than two numbers
    double freedom = 0;

    // Throws Error(runtime) for a number that is not finite.
    static TrimmedMean of(std::vector<double> values);
};

} // namespace keel
