#include "eval/ab/verdicts/noise.hpp"

#include <algorithm>
#include <cmath>

namespace keel {

double ab_mean_distance(const AbCell &a, const AbCell &b, const AbNames &names) {
    const AbPairs pairs = pair_points(a.points, b.points, names);
    const auto positive = [](double v) { return v > 0; };
    const bool ratio = a.kind.ratio && std::all_of(pairs.a.begin(), pairs.a.end(), positive) &&
                       std::all_of(pairs.b.begin(), pairs.b.end(), positive);
    double sum = 0;
    for (size_t i = 0; i < pairs.a.size(); ++i)
        sum += std::abs(ratio ? std::log(pairs.a[i] / pairs.b[i]) : pairs.a[i] - pairs.b[i]);
    const double mean = pairs.a.empty() ? 0 : sum / static_cast<double>(pairs.a.size());
    return ratio ? std::expm1(mean) : mean;
}

AbNoise::AbNoise(const AbTable &table, const AbNames &names, const AbStatistics &statistics) {
    std::map<AbCellKey, const AbCell *> cells;
    for (const AbCell &cell : table.cells) cells[cell] = &cell;
    for (const AbCell &cell : table.cells) {
        if (!cell.arm.ends_with(ab_rerun_suffix)) continue;
        AbContrast named;
        named.kind = AbContrast::Kind::rerun;
        named.a = cell.arm;
        named.b = cell.arm.substr(0, cell.arm.size() - ab_rerun_suffix.size());
        named.a_budget = named.b_budget = cell.budget;
        named.protocol = cell.protocol;
        named.task = cell.task;
        named.metric = cell.metric;
        named.meaning = cell.kind;
        named.family = "noise";
        const auto first =
            cells.find({named.b, cell.budget, cell.protocol, cell.task, cell.metric});
        if (first == cells.end()) continue;
        for (AbContrast &c : contrast_cells(named, cell, *first->second, names, statistics)) {
            double floor = std::abs(c.effect);
            if (cell.kind.kind != AbMetric::Kind::speed) {
                floor = ab_mean_distance(cell, *first->second, names);
            } else if (c.identical < c.items) {
                if (const auto &range = c.interval)
                    floor = std::max({floor, std::abs(range->low), std::abs(range->high)});
            }
            double &known = floors_[{c.protocol, c.task, c.metric, c.length}];
            known = std::max(known, floor);
            contrasts_.push_back(std::move(c));
        }
    }
}

double AbNoise::of(const AbContrast &c) const {
    const auto found = floors_.find({c.protocol, c.task, c.metric, c.length});
    return found == floors_.end() ? 0 : found->second;
}

} // namespace keel
