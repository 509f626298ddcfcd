#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace keel {

// A mean of numbers that came one after the other, and how sure it is.
struct Estimate {
    double mean = 0;
    uint64_t count = 0, blocks = 0;
    // Standard error as if the numbers were independent. Tokens of one text are not: this is too
    // small.
    std::optional<double> error_independent; // needs two numbers
    // Standard error with neighbours taken together: from the variance between blocks of
    // neighbours. The one to believe.
    std::optional<double> error; // needs two blocks
};

// `blocks` are the lengths of runs of neighbours, in order; they add up to the number of values.
Estimate estimate(std::span<const double> values, std::span<const size_t> blocks);

// Runs of about `preferred` numbers, shorter where that would leave fewer than 16 of them. Empty
// for no numbers.
std::vector<size_t> even_blocks(size_t count, size_t preferred);

// The q-quantile, 0 to 1, between neighbours by their distance. `sorted` rises and is not empty.
double quantile(std::span<const double> sorted, double q);

// The standard error of any statistic by a bootstrap over blocks (drawn with replacement, with a
// fixed seed). `statistic` gets the values of a resample, in any order, which it may change.
// Nothing where there are fewer than two blocks.
std::optional<double>
bootstrap_error(std::span<const double> values, std::span<const size_t> blocks,
                const std::function<double(std::vector<double> &)> &statistic);

} // namespace keel
