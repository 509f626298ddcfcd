#pragma once

#include "eval/stats/clusters.hpp"
#include "eval/stats/inference.hpp"

#include <cstdint>
#include <memory>

namespace keel {

// The mean of the items by Student's t, with clusters - 1 degrees of freedom. NULL for fewer than
// two clusters.
std::shared_ptr<const Inference> student_of_mean(const ClusterSums &clusters);

// What the mean of a sample of documents is computed for.
enum class MeanScale {
    plain,      // numbers as they are: they may be skewed, with a heavy tail
    logarithms, // of positive numbers, which are about symmetric
};

// How many documents an inference of a mean needs. tests/eval/coverage_test.cpp measures how often
// each method's 95% intervals hold, for 8 to 200 documents; the table is in
// docs/explain/intervals-and-verdicts.md. Below `fewest`: no method holds, and nothing is decided.
size_t fewest_documents(MeanScale scale);
// From here on the chosen method holds for all distributions that were measured.
inline constexpr size_t asked_documents = 100;
// More are not resampled: Student's t is as good then.
inline constexpr size_t most_resampled_documents = 1000;

// The mean of the items by the method that holds for so many clusters: Student's t joined with
// bootstrap-t (t alone is too narrow for skewed numbers, bootstrap-t alone for heavy tails to both
// sides), and t alone for more than most_resampled_documents. NULL for fewer than two clusters.
std::shared_ptr<const Inference> mean_of_documents(const ClusterSums &clusters, uint64_t resamples,
                                                   uint64_t seed);
// "t, bootstrap t", or "t": what mean_of_documents() is for so many clusters.
const char *mean_method(size_t clusters);

// The mean of differences of shares, each from -1 to 1, by the score test of paired rates. What
// documents gain and lose counts in steps: the step is the sum of the squares of their differences
// over the sum of their sizes, with one document more that differs wholly. So the test has the
// variance of the documents at every difference that it tests, also if few of many documents were
// seen to differ. With one item a document it is the test of paired rates. NULL for no clusters.
std::shared_ptr<const Inference> share_difference(const ClusterSums &clusters);

} // namespace keel
