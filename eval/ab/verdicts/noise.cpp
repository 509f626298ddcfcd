#include "eval/ab/verdicts/noise.hpp"

#include <algorithm>
#include <cmath>

namespace keel::ab {

double Floor::of(const Contrast &c) const {
    if (size == 0 || is_ratio == c.ratio) return size;
    // The kld of the reference can be 0 in one run, so the noise floor of kld is a difference. But
    // the effect of a contrast of two arms can be a ratio.
    const double low = std::min(c.mean_a, c.mean_b), high = std::max(c.mean_a, c.mean_b);
    return c.ratio ? size / low : size * high;
}

Floor mean_distance(const Cell &a, const Cell &b, const Names &names) {
    const Pairs pairs = pair_points(a.points, b.points, names);
    const auto positive = [](double v) { return v > 0; };
    const bool ratio = a.kind.ratio && std::all_of(pairs.a.begin(), pairs.a.end(), positive) &&
                       std::all_of(pairs.b.begin(), pairs.b.end(), positive);
    double sum = 0;
    for (size_t i = 0; i < pairs.a.size(); ++i)
        sum += std::abs(ratio ? std::log(pairs.a[i] / pairs.b[i]) : pairs.a[i] - pairs.b[i]);
    const double mean = pairs.a.empty() ? 0 : sum / static_cast<double>(pairs.a.size());
    return {ratio ? std::expm1(mean) : mean, ratio};
}

Noise::Noise(const Table &table, const Names &names, const Statistics &statistics) {
    std::map<CellKey, const Cell *> cells;
    for (const Cell &cell : table.cells) cells[cell] = &cell;
    for (const Cell &cell : table.cells) {
        if (!cell.arm.ends_with(rerun_suffix)) continue;
        Contrast named;
        named.kind = Contrast::Kind::rerun;
        named.a = cell.arm;
        named.b = cell.arm.substr(0, cell.arm.size() - rerun_suffix.size());
        named.a_budget = named.b_budget = cell.budget;
        named.protocol = cell.protocol;
        named.task = cell.task;
        named.metric = cell.metric;
        named.meaning = cell.kind;
        named.family = "noise";
        const auto first =
            cells.find({named.b, cell.budget, cell.protocol, cell.task, cell.metric});
        if (first == cells.end()) continue;
        for (Contrast &c : contrast_cells(named, cell, *first->second, names, statistics)) {
            Floor floor{std::abs(c.effect), c.ratio};
            if (cell.kind.kind != Metric::Kind::speed) {
                floor = mean_distance(cell, *first->second, names);
            } else if (c.identical < c.items) {
                if (const auto &range = c.interval)
                    floor.size =
                        std::max({floor.size, std::abs(range->low), std::abs(range->high)});
            }
            Floor &known = floors_[{c.protocol, c.task, c.metric, c.length}];
            if (floor.size >= known.size) known = floor;
            contrasts_.push_back(std::move(c));
        }
    }
}

double Noise::of(const Contrast &c) const {
    const auto found = floors_.find({c.protocol, c.task, c.metric, c.length});
    return found == floors_.end() ? 0 : found->second.of(c);
}

} // namespace keel::ab
