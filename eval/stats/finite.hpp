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
                        "cannot compute a statistic: expected finite numbers, found {}; correct or "
                        "remove the item with this number",
                        v);
    }
}

} // namespace keel
