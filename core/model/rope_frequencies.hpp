#pragma once

#include "model/config.hpp"

#include <vector>

namespace keel {

// The rotations of RoPE. At position p, a pair of elements is rotated by p times its frequency, and
// then multiplied by `factor`.
struct RopeAngles {
    std::vector<double> frequencies; // radians per token, [rot / 2]
    double factor = 1;
};

// Returns true if LongRoPE uses the factors for long contexts.
bool has_long_factors(const RopeScaling &scaling, int64_t context);
// Returns the number of positions for which the model was made, with the RoPE for contexts of this
// number of tokens. LongRoPE's short factors are for fewer positions.
int64_t trained_positions(const ModelConfig &config, int64_t context);

// The RoPE of a model's layers, for contexts of this number of tokens. Only LongRoPE depends on the
// context.
RopeAngles model_rope(const ModelConfig &config, int64_t context);
// The RoPE of the layers for which ModelConfig::has_own_rope() is true. All frequencies are 0 in
// layers without RoPE: their rotations change nothing.
RopeAngles own_rope(const ModelConfig &config);

// The angle in radians by which each pair of a head's elements is rotated per token:
// theta^(-2i/rot), changed by `scaling`. Shape [rot / 2].
// - Linear: each frequency is divided by the factor.
// - Factors: each frequency is divided by its own factor; there are rot / 2 factors.
// - Llama 3 (from Llama 3.1 on): a frequency with a wavelength above original / low_freq_factor is
//   divided by the factor. A frequency with a wavelength below original / high_freq_factor stays.
//   Between them the divisor changes linearly.
// - YaRN: a pair that turns more than beta_fast times within the original context stays. A pair
//   that turns less than beta_slow times is divided by the factor. Between them the share of both
//   changes linearly with the number of the pair.
// - LongRoPE: as Factors, with the short factors if `context` is at most the original context, else
//   with the long factors.
std::vector<double> rope_frequencies(double theta, int64_t rot, const RopeScaling &scaling,
                                     int64_t context = 0);

} // namespace keel
