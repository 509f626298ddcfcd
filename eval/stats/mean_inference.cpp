#include "eval/stats/mean_inference.hpp"

#include <cmath>

namespace keel {

std::shared_ptr<const Inference> student_of_mean(const ClusterSums &clusters) {
    const auto error = cluster_error(clusters);
    if (!error) return nullptr;
    return std::make_shared<StudentInference>(clusters.mean(), *error,
                                              static_cast<double>(clusters.size()) - 1);
}

std::shared_ptr<const Inference> share_difference(const ClusterSums &clusters, double step) {
    if (clusters.size() == 0) return nullptr;
    const auto n = static_cast<double>(clusters.size()) + 2;
    double sum = 0, squares = 2 * step * step;
    for (const double v : clusters.linearized()) {
        sum += v;
        squares += v * v;
    }
    const double centre = sum / n;
    return std::make_shared<StudentInference>(
        centre, std::sqrt((squares / n - centre * centre) / n), n - 1);
}

} // namespace keel
