#pragma once

#include "base/error.hpp"

#include <cmath>
#include <span>

namespace keel {

// Throws Error(runtime) if a number is NaN or infinite.
inline void check_finite(std::span<const double> values) {
    for (const double v : values) {
        if (!std::isfinite(v))
            throw_error(ErrorKind::runtime,
                        "a statistic of numbers of which one is {}: the item that gave it "
                        "has to be mended or left out",
                        v);
    }
}

} // namespace keel
