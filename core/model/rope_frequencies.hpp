#pragma once

#include "model/config.hpp"

#include <vector>

namespace keel {

// The angle in radians by which each pair of a head's elements is rotated per token:
// theta^(-2i/rot), changed by `scaling`. Shape [rot / 2].
// - Linear: each frequency is divided by the factor.
// - Factors: each frequency is divided by its own factor; there are rot / 2 factors.
// - Llama 3 (from Llama 3.1 on): a frequency with a wavelength above original / low_freq_factor is
//   divided by the factor. A frequency with a wavelength below original / high_freq_factor stays.
//   Between
//   them the divisor changes linearly.
std::vector<double> rope_frequencies(double theta, int64_t rot, const RopeScaling &scaling);

} // namespace keel
