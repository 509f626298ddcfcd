#include "eval/stats/group_sequential.hpp"

#include "base/error.hpp"
#include "eval/stats/distributions.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace keel {
namespace {

constexpr double infinite_boundary = 37; // the normal tail beyond this boundary is below 1e-299

// Returns the probability that the spending function allows: the probability with which one side of
// a test of `level` rejects at the looks up to the fraction t.
double spent(double level, double t) {
    return 2 * normal_cdf(normal_quantile(0.25 * level) / std::sqrt(t));
}

double normal_density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi); }

// The density of a Brownian motion at a look. Only paths that have not crossed the upper boundary
// at this look or at an earlier look count. `weights` include the weights of Simpson's rule.
struct Density {
    std::vector<double> places, weights;
};

// Returns a grid of places from 8 standard deviations below 0 up to `top`. The places are so close
// that the density can be integrated over a step with the standard deviation `step`.
Density grid(double deviation, double top, double step) {
    constexpr double reach = 8;
    constexpr size_t fewest = 100, most = 3000;
    const double low = -reach * deviation, high = std::min(top, reach * deviation);
    if (high <= low) return {};
    const double width = std::min(deviation / 12, step / 3);
    const auto half = static_cast<size_t>(std::ceil(0.5 * (high - low) / width));
    const size_t n = 2 * std::clamp(half, fewest / 2, most / 2);
    Density out;
    const double h = (high - low) / static_cast<double>(n);
    for (size_t i = 0; i <= n; ++i) {
        out.places.push_back(low + h * static_cast<double>(i));
        out.weights.push_back(h / 3 * (i == 0 || i == n ? 1 : i % 2 == 1 ? 4 : 2));
    }
    return out;
}

// Returns the probability that the Brownian motion is above `bound` after one more step.
double above(const Density &density, double bound, double step) {
    double sum = 0;
    for (size_t i = 0; i < density.places.size(); ++i)
        sum += density.weights[i] * normal_cdf((density.places[i] - bound) / step);
    return sum;
}

Density moved(const Density &from, double deviation, double top, double step, double next_step) {
    Density to = grid(deviation, top, next_step);
    for (size_t j = 0; j < to.places.size(); ++j) {
        double sum = 0;
        constexpr double far = 9;
        const auto begin =
            std::lower_bound(from.places.begin(), from.places.end(), to.places[j] - far * step);
        for (auto i = static_cast<size_t>(begin - from.places.begin());
             i < from.places.size() && from.places[i] <= to.places[j] + far * step; ++i)
            sum += from.weights[i] * normal_density((to.places[j] - from.places[i]) / step);
        to.weights[j] *= sum / step;
    }
    return to;
}

// Interpolates linearly between the points (x[i], y[i]) and returns exp of the value at `at`.
// Before the first point, returns `before`. After the last point, uses the value of the last point.
double line_at(const std::vector<double> &x, const std::vector<double> &y, double at,
               double before) {
    if (at < x.front()) return before;
    if (at >= x.back()) return std::exp(y.back());
    const auto above = std::upper_bound(x.begin(), x.end(), at);
    const auto i = static_cast<size_t>(above - x.begin());
    return std::exp(y[i - 1] + (at - x[i - 1]) / (x[i] - x[i - 1]) * (y[i] - y[i - 1]));
}

} // namespace

SpendingLooks::SpendingLooks(std::vector<double> fractions) : fractions_(std::move(fractions)) {
    double before = 0;
    for (const double t : fractions_) {
        if (!(t > before && t <= 1))
            throw_error(ErrorKind::runtime,
                        "looks at the fractions {} and then {}: expected rising fractions of at "
                        "most 1",
                        before, t);
        before = t;
    }
    if (fractions_.empty())
        throw_error(ErrorKind::runtime, "expected at least one look, found none");
    if (fractions_.size() == 1 && fractions_[0] == 1) return;
    // 120 steps are enough for linear interpolation between logarithms.
    constexpr double least = 1e-9, largest = 0.5;
    constexpr int steps = 120;
    for (int i = 0; i <= steps; ++i) {
        const double level = least * std::pow(largest / least, static_cast<double>(i) / steps);
        const double tail = normal_cdf(-boundary(level));
        if (tail < 1e-300) continue; // no p-value is as small as 1e-300
        const double nominal = std::log(2 * tail);
        // For high levels, the nominal level would fall again as the level rises. The loop leaves
        // these levels out.
        if (!nominals_.empty() && nominal <= nominals_.back()) break;
        levels_.push_back(std::log(level));
        nominals_.push_back(nominal);
    }
}

double SpendingLooks::boundary(double level) const {
    Density density;
    double spent_before = 0, bound = infinite_boundary;
    for (size_t k = 0; k < fractions_.size(); ++k) {
        const double t = fractions_[k], deviation = std::sqrt(t);
        const double step = k == 0 ? deviation : std::sqrt(t - fractions_[k - 1]);
        const double all = spent(level, t), now = all - spent_before;
        spent_before = all;
        const auto probability = [&](double z) {
            return k == 0 ? normal_cdf(-z) : above(density, z * deviation, step);
        };
        double low = 0, high = infinite_boundary;
        for (int i = 0; i < 60 && high - low > 1e-10; ++i) {
            const double middle = 0.5 * (low + high);
            (probability(middle) > now ? low : high) = middle;
        }
        bound = high;
        if (k + 1 == fractions_.size()) break;
        const double next_step = std::sqrt(fractions_[k + 1] - t);
        if (k == 0) {
            density = grid(deviation, bound * deviation, next_step);
            for (size_t i = 0; i < density.places.size(); ++i)
                density.weights[i] *= normal_density(density.places[i] / deviation) / deviation;
        } else {
            density = moved(density, deviation, bound * deviation, step, next_step);
        }
    }
    return bound;
}

double SpendingLooks::nominal(double level) const {
    if (fractions_.size() == 1 && fractions_[0] == 1) return level;
    if (levels_.empty() || level <= 0) return 0;
    return line_at(levels_, nominals_, std::log(level), 0);
}

double SpendingLooks::sequential_p(double p) const {
    if (fractions_.size() == 1 && fractions_[0] == 1) return p;
    if (nominals_.empty()) return 1;
    if (p <= 0) return std::exp(levels_.front());
    if (std::log(p) > nominals_.back()) return 1;
    return line_at(nominals_, levels_, std::log(p), std::exp(levels_.front()));
}

} // namespace keel
