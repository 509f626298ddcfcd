#include "eval/stats/distributions.hpp"

#include <cmath>
#include <limits>
#include <numbers>

namespace keel {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The logarithm of the gamma function by Stirling's series. std::lgamma is not used, because
// std::lgamma writes a global variable on some systems.
double log_gamma(double x) {
    double shift = 0;
    while (x < 12) {
        shift -= std::log(x);
        x += 1;
    }
    const double r = 1 / x, r2 = r * r;
    const double series =
        r * (1.0 / 12 - r2 * (1.0 / 360 - r2 * (1.0 / 1260 - r2 * (1.0 / 1680 - r2 / 1188))));
    return shift + (x - 0.5) * std::log(x) - x + 0.5 * std::log(2 * std::numbers::pi) + series;
}

// The continued fraction of the incomplete beta function, by Lentz's method.
double beta_fraction(double a, double b, double x) {
    constexpr double tiny = 1e-300, enough = 1e-16;
    const auto away_from_zero = [](double v) { return std::abs(v) < tiny ? tiny : v; };
    double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), h = d;
    for (int m = 1; m <= 10'000; ++m) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        d = 1 / away_from_zero(1 + even * d);
        c = away_from_zero(1 + even / c);
        h *= d * c;
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 / away_from_zero(1 + odd * d);
        c = away_from_zero(1 + odd / c);
        h *= d * c;
        if (std::abs(d * c - 1) < enough) break;
    }
    return h;
}

// The regularized incomplete beta function at x. `complement` is 1 - x. The caller passes 1 - x,
// because the caller can know 1 - x more exactly than a subtraction computes it.
double incomplete_beta(double a, double b, double x, double complement) {
    if (x <= 0) return 0;
    if (complement <= 0) return 1;
    const double front = std::exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * std::log(x) +
                                  b * std::log(complement));
    if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
    return 1 - front * beta_fraction(b, a, complement) / b;
}

} // namespace

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

double normal_quantile(double p) {
    if (!(p > 0)) return -infinity;
    if (!(p < 1)) return infinity;
    if (p > 0.5) return -normal_quantile(1 - p);
    // The first value of x has three correct digits. Halley's method then improves x. The method
    // works on the lower tail, because erfc has a small relative error on the lower tail.
    const double t = std::sqrt(-2 * std::log(p));
    double x = -(t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                         (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))));
    for (int i = 0; i < 4; ++i) {
        const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
        if (density == 0) break;
        const double step = (normal_cdf(x) - p) / density;
        x -= step / (1 + 0.5 * x * step);
    }
    return x;
}

double student_cdf(double t, double freedom) {
    const double square = t * t;
    const double x = freedom / (freedom + square), complement = square / (freedom + square);
    const double tail = 0.5 * incomplete_beta(0.5 * freedom, 0.5, x, complement);
    return t > 0 ? 1 - tail : tail;
}

double student_quantile(double p, double freedom) {
    if (!(p > 0)) return -infinity;
    if (!(p < 1)) return infinity;
    if (p > 0.5) return -student_quantile(1 - p, freedom);
    if (p == 0.5) return 0;
    double low = -1, high = 0;
    while (student_cdf(low, freedom) > p) {
        high = low;
        low *= 2;
        if (low < -1e300) return -infinity;
    }
    for (int i = 0; i < 200 && low < high; ++i) {
        const double middle = low + 0.5 * (high - low);
        if (middle == low || middle == high) break;
        (student_cdf(middle, freedom) > p ? high : low) = middle;
    }
    return low + 0.5 * (high - low);
}

} // namespace keel
