#pragma once

#include "model/config.hpp"

#include <vector>

namespace keel {

// Rotation of each pair of a head's elements for one token: theta^(-2i/rot) radians, changed as
// `scaling` says. Shape [rot / 2].
// Linear: each frequency is divided by the factor. Factors: each is divided by its own (rot / 2 of
// them). Llama 3 (RoPE scaling of Llama 3.1): frequencies with a wavelength above
// original / low_freq_factor are divided by the factor, those with one below
// original / high_freq_factor stay, and between the two the divisor changes linearly.
std::vector<double> rope_frequencies(double theta, int64_t rot, const RopeScaling &scaling);

} // namespace keel
