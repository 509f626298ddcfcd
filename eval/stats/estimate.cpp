#include "eval/stats/estimate.hpp"

#include "eval/stats/bootstrap.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace keel {
namespace {

constexpr size_t fewest_blocks = 16;
constexpr size_t most_resamples = 1000, fewest_resamples = 100;
// The bootstrap draws at most this many values in all resamples together. Drawing this number of
// values takes about a second.
constexpr size_t resampled_values = 20'000'000;

} // namespace

Estimate estimate(std::span<const double> values, std::span<const size_t> blocks) {
    Estimate e;
    e.count = values.size();
    e.blocks = blocks.size();
    if (values.empty()) return e;
    const auto n = static_cast<double>(values.size());
    double sum = 0;
    for (const double v : values) sum += v;
    e.mean = sum / n;
    if (values.size() > 1) {
        double squares = 0;
        for (const double v : values) squares += (v - e.mean) * (v - e.mean);
        e.error_independent = std::sqrt(squares / (n - 1) / n);
    }
    if (blocks.size() > 1) {
        // The mean is a ratio of two sums over blocks, because blocks can have different lengths.
        double squares = 0;
        size_t at = 0;
        for (const size_t length : blocks) {
            double residual = 0;
            for (const double v : values.subspan(at, length)) residual += v - e.mean;
            squares += residual * residual;
            at += length;
        }
        const auto k = static_cast<double>(blocks.size());
        e.error = std::sqrt(squares * k / (k - 1)) / n;
    }
    return e;
}

std::vector<size_t> even_blocks(size_t count, size_t preferred) {
    if (count == 0) return {};
    const size_t length =
        std::clamp<size_t>(count / fewest_blocks, 1, std::max<size_t>(preferred, 1));
    std::vector<size_t> blocks(count / length, length);
    // If `count` is not a multiple of the block length, the remaining numbers go to the first
    // blocks, one number to each block.
    for (size_t i = 0, left = count % length; left > 0; --left, ++i) ++blocks[i % blocks.size()];
    return blocks;
}

double quantile(std::span<const double> sorted, double q) {
    const double at = q * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<size_t>(at);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

std::optional<double>
bootstrap_error(std::span<const double> values, std::span<const size_t> blocks,
                const std::function<double(std::vector<double> &)> &statistic) {
    if (blocks.size() < 2) return std::nullopt;
    std::vector<size_t> begins;
    for (size_t i = 0, at = 0; i < blocks.size(); at += blocks[i++]) begins.push_back(at);
    std::mt19937_64 random(1);
    const size_t resamples = std::clamp(resampled_values / std::max<size_t>(values.size(), 1),
                                        fewest_resamples, most_resamples);
    std::vector<double> drawn;
    const auto of_resample = [&](const std::vector<size_t> &chosen) {
        drawn.clear();
        for (const size_t b : chosen) {
            const auto block = values.subspan(begins[b], blocks[b]);
            drawn.insert(drawn.end(), block.begin(), block.end());
        }
        return statistic(drawn);
    };
    const std::vector<double> found = bootstrap(
        blocks.size(), resamples, [&](size_t n) { return random() % n; }, of_resample);
    double mean = 0, squares = 0;
    for (const double v : found) mean += v / static_cast<double>(found.size());
    for (const double v : found) squares += (v - mean) * (v - mean);
    return std::sqrt(squares / static_cast<double>(found.size() - 1));
}

} // namespace keel
