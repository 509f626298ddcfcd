#pragma once

namespace keel {

struct Interval {
    double low = 0, high = 0;
    bool operator==(const Interval &) const = default;
};

} // namespace keel
