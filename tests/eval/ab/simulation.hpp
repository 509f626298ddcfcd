#pragma once

#include "eval/stats/clusters.hpp"
#include "eval/stats/random.hpp"

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

// Distributions with a known mean, for simulations of coverage and of error rates.
namespace keel::test {

// A seeded generator. Its numbers are equal on every machine except for the last digits of
// logarithms.
class Draws {
  public:
    explicit Draws(uint64_t seed) : random_(seed) {}

    double uniform() { return (static_cast<double>(random_.next() >> 11) + 0.5) * 0x1p-53; }
    uint32_t below(uint32_t n) { return random_.below(n); }
    double normal() {
        return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
    }
    double student(int freedom) {
        double squares = 0;
        for (int i = 0; i < freedom; ++i) squares += std::pow(normal(), 2);
        return normal() / std::sqrt(squares / freedom);
    }
    // gamma distribution with shape 1/2 and scale 1
    double gamma_half() { return 0.5 * std::pow(normal(), 2); }
    double exponential() { return -std::log(uniform()); }
    double pareto(double shape) { return std::pow(uniform(), -1 / shape); }

  private:
    Xoshiro256 random_;
};

struct Family {
    std::string name;
    double mean = 0;
    std::function<double(Draws &)> draw;
    bool is_heavy = false; // true: the tail on one side is heavy, and the variance is finite
};

inline double mean_of(const std::vector<double> &values) {
    double sum = 0;
    for (const double v : values) sum += v;
    return sum / static_cast<double>(values.size());
}

inline Family drawn_from(std::string name, std::vector<double> values) {
    const double mean = mean_of(values);
    return {std::move(name), mean, [values = std::move(values)](Draws &d) {
                return values[d.below(static_cast<uint32_t>(values.size()))];
            }};
}

// Returns "nll" or "kld" of each document of models/tiny (tests/golden/document_divergences.json).
inline std::vector<double> divergences(const std::string &metric, const std::string &arm) {
    static const nlohmann::json json = [] {
        std::ifstream in(std::string(KEEL_SOURCE_DIR) + "/tests/golden/document_divergences.json");
        return nlohmann::json::parse(in);
    }();
    return json.at(metric).at(arm).get<std::vector<double>>();
}

// Returns f(a[i], b[i]) for each document.
template <typename Function>
std::vector<double> each_document(const std::vector<double> &a, const std::vector<double> &b,
                                  const Function &f) {
    std::vector<double> out;
    for (size_t i = 0; i < a.size(); ++i) out.push_back(f(a[i], b[i]));
    return out;
}

// Families of numbers without a transformation: differences of nll, sizes of kld.
inline std::vector<Family> plain_families() {
    const auto minus = [](double a, double b) { return a - b; };
    std::vector<Family> all{
        {"normal", 0, [](Draws &d) { return d.normal(); }},
        {"t, 3 degrees", 0, [](Draws &d) { return d.student(3); }},
        {"exponential", 1, [](Draws &d) { return d.exponential(); }},
        {"gamma, shape 0.5", 0.5, [](Draws &d) { return d.gamma_half(); }},
        {"lognormal, sigma 0.5", std::exp(0.125),
         [](Draws &d) { return std::exp(0.5 * d.normal()); }},
        {"lognormal, sigma 1", std::exp(0.5), [](Draws &d) { return std::exp(d.normal()); }, true},
        {"Pareto, shape 3", 1.5, [](Draws &d) { return d.pareto(3); }, true},
        {"Pareto, shape 2.5", 2.5 / 1.5, [](Draws &d) { return d.pareto(2.5); }, true},
    };
    for (const char *arm : {"window", "knorm"})
        all.push_back(
            drawn_from(std::string("tiny, nll ") + arm + " - full",
                       each_document(divergences("nll", arm), divergences("nll", "full"), minus)));
    for (const char *arm : {"window", "q4cache"})
        all.push_back(drawn_from(std::string("tiny, kld ") + arm, divergences("kld", arm)));
    return all;
}

// Families of logarithms: of kld, and of the ratio of two arms' kld.
inline std::vector<Family> logarithm_families() {
    const double euler = 0.57721566490153286;
    std::vector<Family> all{
        {"lognormal", 0, [](Draws &d) { return d.normal(); }},
        {"log-t, 3 degrees", 0, [](Draws &d) { return d.student(3); }},
        {"Pareto", 1, [](Draws &d) { return d.exponential(); }},
        {"exponential", -euler, [](Draws &d) { return std::log(d.exponential()); }},
        // The mean is digamma(1/2) = -euler - 2 log 2.
        {"gamma, shape 0.5", -euler - 2 * std::log(2.0),
         [](Draws &d) { return std::log(d.gamma_half()); }},
    };
    const auto log_of = [](double a, double) { return std::log(a); };
    const auto log_ratio = [](double a, double b) { return std::log(a / b); };
    for (const char *arm : {"window", "q4cache"}) {
        const std::vector<double> kld = divergences("kld", arm);
        all.push_back(
            drawn_from(std::string("tiny, log kld ") + arm, each_document(kld, kld, log_of)));
    }
    all.push_back(drawn_from(
        "tiny, kld window / snapkv",
        each_document(divergences("kld", "window"), divergences("kld", "snapkv"), log_ratio)));
    all.push_back(drawn_from(
        "tiny, kld knorm / random",
        each_document(divergences("kld", "knorm"), divergences("kld", "random"), log_ratio)));
    return all;
}

// Treats each number as one document.
inline ClusterSums documents(const std::vector<double> &values) {
    ClusterSums out;
    out.sums = values;
    out.counts.assign(values.size(), 1);
    out.items = values.size();
    return out;
}

} // namespace keel::test
