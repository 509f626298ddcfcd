#pragma once

#include "eval/stats/clusters.hpp"
#include "eval/stats/inference.hpp"

#include <memory>

namespace keel {

// The mean of the items by Student's t, with clusters - 1 degrees of freedom. NULL for fewer than
// two clusters.
std::shared_ptr<const Inference> student_of_mean(const ClusterSums &clusters);

// The mean of differences of shares, each from -1 to 1. Two clusters are added, one that differs
// by `step` to either side, then Student's t. Without them, a sample in which few clusters differ
// knows nothing of the ones that it has not seen. (With differences of -1, 0 and 1, and normal
// quantiles, this is the adjusted Wald interval of Bonett and Price, 2012.) `step` above 0; NULL
// for no clusters.
std::shared_ptr<const Inference> share_difference(const ClusterSums &clusters, double step);

} // namespace keel
