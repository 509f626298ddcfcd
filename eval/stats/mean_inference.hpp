#pragma once

#include "eval/stats/clusters.hpp"
#include "eval/stats/inference.hpp"

#include <cstdint>
#include <memory>

namespace keel {

// The mean of the items by Student's t, with clusters - 1 degrees of freedom. NULL for fewer than
// two clusters.
std::shared_ptr<const Inference> student_of_mean(const ClusterSums &clusters);

// The scale on which the mean of a sample of documents is computed.
enum class MeanScale {
    plain,      // numbers as they are; they may be skewed, or have a heavy tail
    logarithms, // logarithms of positive numbers; they are nearly symmetric
};

// The fewest documents with which an inference of a mean holds. With fewer no method holds, and
// nothing is decided. tests/eval/ab/coverage_test.cpp measures how often the 95% intervals of each
// method hold for 8 to 200 documents. docs/explain/intervals-and-verdicts.md has the table.
size_t fewest_documents(MeanScale scale);
// From this number on, the chosen method holds for all distributions that were measured.
inline constexpr size_t asked_documents = 100;
// Above this number there is no bootstrap, because Student's t is as good.
inline constexpr size_t most_resampled_documents = 1000;

// The mean of the items, by the method that holds for this number of clusters. It is Student's t
// joined with bootstrap-t. Alone, t is too narrow for skewed numbers, and bootstrap-t for numbers
// with heavy tails on both sides. Above most_resampled_documents it is t alone. NULL for fewer than
// two clusters.
std::shared_ptr<const Inference> mean_of_documents(const ClusterSums &clusters, uint64_t resamples,
                                                   uint64_t seed);
// The method of mean_of_documents() for `clusters` clusters: "t, bootstrap t" or "t".
const char *mean_method(size_t clusters);

// The mean of differences of shares, each from -1 to 1, by the score test of paired rates. What
// documents gain and lose counts in steps: the step is the sum of the squares of their differences
// over the sum of their sizes, with one document more that differs wholly. So the test has the
// variance of the documents at every difference that it tests, also if few of many documents were
// seen to differ. With one item a document it is the test of paired rates. NULL for no clusters.
std::shared_ptr<const Inference> share_difference(const ClusterSums &clusters);

} // namespace keel
