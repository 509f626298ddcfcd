#include "eval/compare/op_error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace keel {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

// Returns |a - b| / scale. If a value is not finite, both values must be equal. Otherwise the error
// is infinite.
double error_of(float a, float b, double scale) {
    if (std::isnan(a) && std::isnan(b)) return 0;
    if (a == b) return 0;
    if (!std::isfinite(a) || !std::isfinite(b)) return infinite;
    return std::abs(static_cast<double>(a) - b) / scale;
}

double ratio_of(double error, double bound) {
    return error == 0 ? 0 : bound > 0 ? error / bound : infinite;
}

} // namespace

OutputError output_error(const OpOutput &mine, const TensorValues &expected, double bound) {
    OutputError out;
    const std::vector<float> &a = mine.values.values, &b = expected.values;
    const bool whole = mine.values.dtype == KEEL_DTYPE_I32; // integers are indices
    const auto inner = static_cast<size_t>(std::max<int64_t>(expected.inner(), 1));
    for (size_t row = 0; row + inner <= b.size(); row += inner) {
        double scale = 1;
        for (size_t e = row; e < row + inner && !whole; ++e) {
            if (std::isfinite(b[e]) && mine.counts(e))
                scale = std::max(scale, 1 + std::abs(static_cast<double>(b[e])));
        }
        for (size_t e = row; e < row + inner; ++e) {
            if (!mine.counts(e)) continue;
            const double error = error_of(a[e], b[e], scale), ratio = ratio_of(error, bound);
            if (ratio > out.ratio) {
                out.element = e;
                out.error = error;
                out.ratio = ratio;
            }
            out.beyond += ratio > 1 ? 1 : 0;
            if (!std::isfinite(a[e]) || !std::isfinite(b[e])) continue;
            const double difference = static_cast<double>(a[e]) - b[e];
            out.largest = std::max(out.largest, std::abs(difference));
            out.squares += difference * difference;
            out.scale += static_cast<double>(b[e]) * b[e];
        }
    }
    return out;
}

} // namespace keel
