#include "model/rope_frequencies.hpp"

#include <algorithm>
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

// The number of the pair that turns `rotations` times within the original context. It is not a
// whole number.
double pair_of(double rotations, double theta, int64_t rot, const RopeScaling &s) {
    const double original = static_cast<double>(s.original_context);
    return static_cast<double>(rot) * std::log(original / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
}

void scale_yarn(std::vector<double> &frequencies, double theta, int64_t rot, const RopeScaling &s) {
    double low = pair_of(s.beta_fast, theta, rot, s), high = pair_of(s.beta_slow, theta, rot, s);
    if (s.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(rot - 1));
    if (low == high) high += 0.001; // as in the authors' code, to divide by no 0
    for (size_t i = 0; i < frequencies.size(); ++i) {
        const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        frequencies[i] *= ramp / s.factor + (1 - ramp);
    }
}

} // namespace

bool has_long_factors(const RopeScaling &s, int64_t context) {
    return s.kind == RopeScaling::Kind::longrope && context > s.original_context;
}

int64_t trained_positions(const ModelConfig &c, int64_t context) {
    const RopeScaling &s = c.rope_scaling;
    const bool is_short = s.kind == RopeScaling::Kind::longrope && !has_long_factors(s, context);
    return is_short ? std::min(c.max_positions, s.original_context) : c.max_positions;
}

RopeAngles model_rope(const ModelConfig &c, int64_t context) {
    return {rope_frequencies(c.rope_theta, c.rot, c.rope_scaling, context),
            c.rope_scaling.attention_factor};
}

RopeAngles own_rope(const ModelConfig &c) {
    if (c.local_rope_theta) return {rope_frequencies(*c.local_rope_theta, c.rot, {})};
    return {std::vector<double>(static_cast<size_t>(c.rot / 2), 0.0)};
}

std::vector<double> rope_frequencies(double theta, int64_t rot, const RopeScaling &scaling,
                                     int64_t context) {
    const std::vector<double> &factors =
        has_long_factors(scaling, context) ? scaling.long_factors : scaling.factors;
    std::vector<double> out(static_cast<size_t>(rot / 2));
    for (size_t i = 0; i < out.size(); ++i) {
        out[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rot));
        if (scaling.kind == RopeScaling::Kind::linear) out[i] /= scaling.factor;
        if (scaling.kind == RopeScaling::Kind::factors ||
            scaling.kind == RopeScaling::Kind::longrope)
            out[i] /= factors.at(i);
        if (scaling.kind == RopeScaling::Kind::llama3) out[i] = scale_llama3(out[i], scaling);
    }
    if (scaling.kind == RopeScaling::Kind::yarn) scale_yarn(out, theta, rot, scaling);
    return out;
}

} // namespace keel
