#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace keel {

// A mean of consecutive numbers, with its standard error.
struct Estimate {
    double mean = 0;
    uint64_t count = 0, blocks = 0;
    // The standard error as if the numbers were independent. Tokens of one text are not
    // independent, so it is too small.
    std::optional<double> error_independent; // needs two numbers
    // The standard error from the variance between blocks of neighbours. Use this one.
    std::optional<double> error; // needs two blocks
};

// `blocks`: the lengths of consecutive blocks. Their sum is the number of values.
Estimate estimate(std::span<const double> values, std::span<const size_t> blocks);

// Lengths of blocks of about `preferred` numbers. They are shorter if there would be fewer than 16
// blocks. Empty for no numbers.
std::vector<size_t> even_blocks(size_t count, size_t preferred);

// The q-quantile (q from 0 to 1), interpolated linearly between neighbours. `sorted` is in rising
// order and not empty.
double quantile(std::span<const double> sorted, double q);

// The standard error of any statistic, by a bootstrap over blocks. Blocks are drawn with
// replacement and a fixed seed. `statistic` gets the values of a resample in any order, and may
// change them. Returns nothing for fewer than two blocks.
std::optional<double>
bootstrap_error(std::span<const double> values, std::span<const size_t> blocks,
                const std::function<double(std::vector<double> &)> &statistic);

} // namespace keel
