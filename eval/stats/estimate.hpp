#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace keel {

// The mean of consecutive numbers (for example of the tokens of a text), and standard errors of the
// mean.
struct Estimate {
    double mean = 0;
    uint64_t count = 0, blocks = 0;
    // The standard error, computed as if the numbers were independent. The tokens of one text are
    // not independent, so this error is too small for the tokens of a text.
    std::optional<double> error_independent; // nullopt for fewer than two numbers
    // The standard error, computed from the variance between blocks of consecutive numbers. Use
    // this error for the tokens of a text.
    std::optional<double> error; // nullopt for fewer than two blocks
};

// Computes the mean of `values`. `blocks` has the lengths of consecutive blocks; their sum is the
// number of values.
Estimate estimate(std::span<const double> values, std::span<const size_t> blocks);

// Divides `count` numbers into blocks of about `preferred` numbers, and returns the lengths of the
// blocks. The blocks are shorter if there would be fewer than 16 blocks. Returns no blocks for no
// numbers.
std::vector<size_t> even_blocks(size_t count, size_t preferred);

// The q-quantile, with linear interpolation between neighbours. q is from 0 to 1. `sorted` must be
// in rising order and not empty.
double quantile(std::span<const double> sorted, double q);

// The standard error of a statistic, by a bootstrap over blocks. The bootstrap draws blocks with
// replacement and uses a fixed seed. `statistic` gets the values of a resample in any order, and is
// allowed to change these values. Returns nullopt for fewer than two blocks.
std::optional<double>
bootstrap_error(std::span<const double> values, std::span<const size_t> blocks,
                const std::function<double(std::vector<double> &)> &statistic);

} // namespace keel
