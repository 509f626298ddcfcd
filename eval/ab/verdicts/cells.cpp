#include "eval/ab/verdicts/cells.hpp"

#include "eval/stats/clusters.hpp"
#include "eval/stats/mean_inference.hpp"
#include "eval/stats/wilson.hpp"

namespace keel::ab {
namespace {

// The interval of a rate whose items share documents. The function returns Wilson's interval for
// the effective number of items. The effective number of items is the number of independent items
// that would have the same standard error.
Interval rate_interval(const ClusterSums &sums, const Statistics &s) {
    const auto n = static_cast<double>(sums.items);
    const double rate = sums.mean(), binomial = rate * (1 - rate) / n;
    double effective = n;
    if (sums.sums.size() < sums.items) {
        const double error = cluster_error(sums).value_or(0);
        effective = error > 0 && binomial > 0 ? std::min(n, n * binomial / (error * error))
                                              : static_cast<double>(sums.sums.size());
    }
    return wilson_interval(rate * effective, effective, s.confidence);
}

} // namespace

CellSummary summarize_cell(const Cell &cell, const Statistics &s) {
    CellSummary out;
    out.cell = &cell;
    std::vector<double> values;
    std::vector<uint32_t> clusters;
    bool yes_no = cell.kind.kind == Metric::Kind::quality;
    for (const Point &point : cell.points) {
        values.push_back(point.value);
        clusters.push_back(point.cluster);
        yes_no = yes_no && (point.value == 0 || point.value == 1);
    }
    const ClusterSums sums = ClusterSums::of(values, clusters);
    out.items = values.size();
    out.clusters = sums.sums.size();
    out.mean = sums.mean();
    fill_quantiles(out, values);
    if (yes_no) {
        out.interval = rate_interval(sums, s);
    } else if (sums.size() >= fewest_documents(MeanScale::plain)) {
        out.interval = mean_of_documents(sums, s.resamples, s.seed)->finite_interval(s.confidence);
    }
    return out;
}

} // namespace keel::ab
