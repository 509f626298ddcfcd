#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

// Intervals and tests for experiments: seeded, and the same on every platform. A number that is not
// finite is refused with Error(runtime) by every function that takes numbers.
namespace keel {

struct Interval {
    double low = 0, high = 0;
    bool operator==(const Interval &) const = default;
};

// A small generator of our own (xoshiro256**, seeded by splitmix64): the standard library's
// distributions differ between platforms.
class AbRandom {
  public:
    explicit AbRandom(uint64_t seed);
    uint64_t next();
    // 0 to n - 1; n is at least 1 and below 2^32.
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(((next() >> 32) * n) >> 32); }

  private:
    uint64_t state_[4];
};

// Numbers of items, summed over the cluster (document) that they share: all that a mean and its
// uncertainty need.
struct ClusterSums {
    std::vector<double> sums;
    std::vector<double> counts; // of items, each above 0
    uint64_t items = 0;

    double mean() const; // of the items; 0 without any
    // `clusters[i]` is any id for item i; clusters are kept in the order of their first item.
    static ClusterSums of(std::span<const double> values, std::span<const uint32_t> clusters);
};

// Standard error of the mean when clusters, not items, are independent. Nothing for fewer than two
// clusters.
std::optional<double> cluster_error(const ClusterSums &clusters);

struct BootstrapInterval {
    Interval percentile;
    std::optional<Interval> bca; // bias-corrected and accelerated; nothing where it is not defined
};

// Means of clusters drawn with replacement. Nothing for fewer than two clusters. `resamples` at
// least 1.
std::optional<BootstrapInterval> cluster_bootstrap(const ClusterSums &clusters, double confidence,
                                                   uint64_t resamples, uint64_t seed);

// Mean +- t * standard error, with clusters - 1 degrees of freedom. Nothing for fewer than two
// clusters.
std::optional<Interval> student_interval(const ClusterSums &clusters, double confidence);

// The mean of the middle: a fifth of the numbers is left out at each end (none below five), so that
// a disturbed one moves it little. Its interval and test are Yuen's (1974) for one sample:
// Student's t by the winsorized spread, with the degrees of freedom of what is left.
struct TrimmedMean {
    double mean = 0;
    std::optional<double> error; // standard error; nothing for fewer than two numbers
    double freedom = 0;

    static TrimmedMean of(std::vector<double> values);
    std::optional<Interval> interval(double confidence) const;
    std::optional<double> test() const; // two-sided, of a mean of 0
};

// Wilson's score interval of a rate. `trials` may be an effective number; 0 gives [0, 1].
Interval wilson_interval(double hits, double trials, double confidence);

// Pairs of yes and no, first against second.
struct PairedCounts {
    uint64_t both = 0, first_only = 0, second_only = 0, neither = 0;
    uint64_t total() const { return both + first_only + second_only + neither; }
};

// McNemar's exact test, two-sided: only the pairs that differ count. 1 where none does.
double mcnemar_exact(const PairedCounts &counts);

// Newcombe's hybrid score interval for the difference of two paired rates (first - second). It
// keeps its width where few or no pairs differ, where a bootstrap has none. [-1, 1] without pairs.
Interval newcombe_interval(const PairedCounts &counts, double confidence);

struct SignFlip {
    double p = 1;
    bool exact = false; // all flips, not a sample of them
};

// Are differences symmetric around 0? Two-sided, flips whole clusters. Exact up to 2^17 flips, else
// sampled: `resamples` of them, ten times as many where fewer than ten were as extreme. Clusters
// that sum to 0 do not matter.
SignFlip sign_flip_test(std::span<const double> cluster_sums, uint64_t resamples, uint64_t seed);

// Two-sided, of a mean of 0, with clusters - 1 degrees of freedom. Nothing for fewer than two
// clusters.
std::optional<double> student_test(const ClusterSums &clusters);

// Holm's step-down adjustment: adjusted p-values in the order of the given ones.
std::vector<double> holm(std::span<const double> p);

// The least true effect that a two-sided test at `confidence` finds with the given power.
double minimal_detectable_effect(double standard_error, double freedom, double confidence,
                                 double power = 0.8);

} // namespace keel
