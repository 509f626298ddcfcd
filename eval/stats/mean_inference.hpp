#pragma once

#include "eval/stats/clusters.hpp"
#include "eval/stats/inference.hpp"

#include <cstdint>
#include <memory>

namespace keel {

// Inference about the mean of the items by Student's t. The degrees of freedom are the number of
// clusters - 1. Returns NULL for fewer than two clusters.
std::shared_ptr<const Inference> student_of_mean(const ClusterSums &clusters);

// The scale on which the mean over documents is computed.
enum class MeanScale {
    plain,      // plain numbers, which can be skewed or have a heavy tail
    logarithms, // logarithms of positive numbers, which are nearly symmetric
};

// The fewest documents for which the intervals of the mean are reliable: about 93% of the 95%
// intervals contain the true mean, also for the heaviest tail of the simulation (92.5 to 92.8% of
// 20,000 samples with 50 documents). With fewer
// documents, no method here is reliable, and Keel gives no verdict. tests/eval/ab/coverage_test.cpp
// measures how often the 95% intervals of each method contain the true mean, for 8 to 200
// documents. docs/explain/intervals-and-verdicts.md has the table.
size_t fewest_documents(MeanScale scale);
// From this number of documents on, the intervals of mean_of_documents() are reliable for all
// distributions that the coverage test measures.
inline constexpr size_t asked_documents = 100;
// Above this number of documents, mean_of_documents() uses no bootstrap, because Student's t is as
// good.
inline constexpr size_t most_resampled_documents = 1000;

// Inference about the mean of the items. The method depends on the number of clusters. Up to
// most_resampled_documents clusters, the function joins Student's t and bootstrap-t
// (JoinedInference). The intervals of Student's t alone are too narrow for skewed numbers. The
// intervals of bootstrap-t alone are too narrow for numbers with heavy tails on both sides. Above
// most_resampled_documents clusters, the function uses Student's t alone. Returns NULL for fewer
// than two clusters.
std::shared_ptr<const Inference> mean_of_documents(const ClusterSums &clusters, uint64_t resamples,
                                                   uint64_t seed);
// The name of the method that mean_of_documents() uses for `clusters` clusters: "t, bootstrap t" or
// "t".
const char *mean_method(size_t clusters);

// Inference about the mean of differences of shares. Each difference is from -1 to 1. The method is
// the score test of paired rates (PairedRateInference). A document's difference can be a fraction,
// so gains and losses are counted in steps. The step is the sum of the squared differences divided
// by the sum of the absolute differences. Both sums contain one additional document with a
// difference of 1. So the variance of the test is the variance of the documents, even if only a few
// of many documents differ. If each document has one item, the method is exactly the test of paired
// rates with a step of 1. Returns NULL for no clusters.
std::shared_ptr<const Inference> share_difference(const ClusterSums &clusters);

} // namespace keel
