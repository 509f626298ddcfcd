#include "eval/stats/mean_inference.hpp"

#include "eval/stats/bootstrap_t.hpp"
#include "eval/stats/paired_rates.hpp"

#include <cmath>
#include <numeric>

namespace keel {

std::shared_ptr<const Inference> student_of_mean(const ClusterSums &clusters) {
    const auto error = cluster_error(clusters);
    if (!error) return nullptr;
    return std::make_shared<StudentInference>(clusters.mean(), *error,
                                              static_cast<double>(clusters.size()) - 1);
}

size_t fewest_documents(MeanScale scale) { return scale == MeanScale::logarithms ? 10 : 50; }

std::shared_ptr<const Inference> mean_of_documents(const ClusterSums &clusters, uint64_t resamples,
                                                   uint64_t seed) {
    auto student = student_of_mean(clusters);
    if (!student || clusters.size() > most_resampled_documents) return student;
    return std::make_shared<JoinedInference>(
        std::move(student),
        std::make_shared<BootstrapTInference>(clusters.linearized(), resamples, seed));
}

const char *mean_method(size_t clusters) {
    return clusters > most_resampled_documents ? "t" : "t, bootstrap t";
}

std::shared_ptr<const Inference> share_difference(const ClusterSums &clusters) {
    if (clusters.size() == 0) return nullptr;
    const auto n = static_cast<double>(clusters.size());
    const double weight = n / std::accumulate(clusters.counts.begin(), clusters.counts.end(), 0.0);
    double gain = 0, loss = 0, squares = 1;
    for (const double sum : clusters.sums) {
        const double part = sum * weight;
        (part > 0 ? gain : loss) += std::abs(part);
        squares += part * part;
    }
    return PairedRateInference::of_shares(gain, loss, n, squares / (gain + loss + 1));
}

} // namespace keel
