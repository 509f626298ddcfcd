#include "model/rope_frequencies.hpp"

#include <cmath>
#include <numbers>

namespace keel {
namespace {

double scale_llama3(double frequency, const RopeScaling &s) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    const double original = static_cast<double>(s.original_context);
    if (wavelength < original / s.high_freq_factor) return frequency;
    if (wavelength > original / s.low_freq_factor) return frequency / s.factor;
    const double ramp =
        (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    return (1 - ramp) * frequency / s.factor + ramp * frequency;
}

} // namespace

std::vector<double> rope_frequencies(double theta, int64_t rot, const RopeScaling &scaling) {
    std::vector<double> out(static_cast<size_t>(rot / 2));
    for (size_t i = 0; i < out.size(); ++i) {
        out[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rot));
        if (scaling.kind == RopeScaling::Kind::linear) out[i] /= scaling.factor;
        if (scaling.kind == RopeScaling::Kind::factors) out[i] /= scaling.factors.at(i);
        if (scaling.kind == RopeScaling::Kind::llama3) out[i] = scale_llama3(out[i], scaling);
    }
    return out;
}

} // namespace keel
