#include "eval/ab/verdicts/equal_bytes.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace keel::ab {
namespace {

// Two sizes that differ by at most this share count as equal. Partly filled blocks and tables of
// indices cause such small differences.
constexpr double same_size = 0.005;

bool nearly_equal(double a, double b) {
    return std::abs(a - b) <= same_size * std::max(std::abs(a), std::abs(b));
}

using Series = std::vector<const Cell *>;

std::string budgets_text(const Cell &low, const Cell &high) {
    return low.budget == high.budget ? low.budget : low.budget + " to " + high.budget;
}

Interval range_of(const Series &cells) { return {cells.front()->kv_bytes, cells.back()->kv_bytes}; }

// Returns the measured sizes that both arms reach, without duplicates.
std::vector<double> common_sizes(const Series &a, const Series &b) {
    const Interval x = range_of(a), y = range_of(b);
    std::vector<double> out;
    for (const Series *series : {&a, &b}) {
        for (const Cell *cell : *series) {
            const double size = cell->kv_bytes;
            const bool inside = size >= std::max(x.low, y.low) * (1 - same_size) &&
                                size <= std::min(x.high, y.high) * (1 + same_size);
            const auto near = [&](double other) { return nearly_equal(size, other); };
            if (inside && std::none_of(out.begin(), out.end(), near)) out.push_back(size);
        }
    }
    std::sort(out.begin(), out.end());
    return out;
}

std::vector<Point> mixed(const Cell &low, const Cell &high, double weight) {
    const auto is_ratio = [](const Cell &cell) {
        return cell.kind.ratio && std::all_of(cell.points.begin(), cell.points.end(),
                                              [](const Point &p) { return p.value > 0; });
    };
    const bool ratio = is_ratio(low) && is_ratio(high);
    std::vector<Point> out;
    for (size_t i = 0, j = 0; i < low.points.size() && j < high.points.size();) {
        const Point &a = low.points[i], &b = high.points[j];
        if (a.item == b.item) {
            Point point = a;
            point.value =
                ratio ? std::exp(std::log(a.value) * (1 - weight) + std::log(b.value) * weight)
                      : a.value * (1 - weight) + b.value * weight;
            out.push_back(point);
        }
        i += a.item <= b.item ? 1 : 0;
        j += b.item <= a.item ? 1 : 0;
    }
    return out;
}

} // namespace

double Apart::gap_bytes() const {
    return std::max({0.0, a_bytes.low - b_bytes.high, b_bytes.low - a_bytes.high});
}

double Apart::gap_share() const {
    return gap_bytes() / std::max(1.0, std::min(a_bytes.high, b_bytes.high));
}

AtBytes arm_at_bytes(const Series &cells, double bytes) {
    for (const Cell *cell : cells) {
        if (nearly_equal(cell->kv_bytes, bytes))
            return {cell->points, cell->budget, static_cast<double>(cell->peak_kv_bytes), false};
    }
    for (size_t i = 1; i < cells.size(); ++i) {
        const Cell &low = *cells[i - 1], &high = *cells[i];
        if (bytes < low.kv_bytes || bytes > high.kv_bytes) continue;
        const double weight = (bytes - low.kv_bytes) / (high.kv_bytes - low.kv_bytes);
        return {mixed(low, high, weight), budgets_text(low, high),
                static_cast<double>(low.peak_kv_bytes) * (1 - weight) +
                    static_cast<double>(high.peak_kv_bytes) * weight,
                true};
    }
    return {};
}

EqualBytes compare_at_equal_bytes(
    const Table &table, const Names &names, const Statistics &statistics,
    const std::function<bool(const std::string &, const std::string &)> &wanted) {
    using Asked = std::tuple<std::string, std::string, std::string>; // task, metric, protocol
    std::vector<Asked> order;
    std::map<Asked, std::vector<std::pair<std::string, Series>>> all;
    for (const Cell &cell : table.cells) {
        if (!cell.kind.is_quality() || cell.points.empty() || cell.kv_bytes <= 0 ||
            cell.arm.ends_with(rerun_suffix))
            continue;
        const Asked question{cell.task, cell.metric, cell.protocol};
        if (!all.contains(question)) order.push_back(question);
        auto &arms = all[question];
        auto at = std::find_if(arms.begin(), arms.end(),
                               [&](const auto &one) { return one.first == cell.arm; });
        if (at == arms.end()) at = arms.insert(arms.end(), {cell.arm, {}});
        at->second.push_back(&cell);
    }
    EqualBytes out;
    for (const Asked &question : order) {
        auto &arms = all[question];
        for (auto &[arm, series] : arms)
            std::stable_sort(series.begin(), series.end(), [](const Cell *a, const Cell *b) {
                return a->kv_bytes < b->kv_bytes;
            });
        for (size_t i = 0; i < arms.size(); ++i) {
            for (size_t j = i + 1; j < arms.size(); ++j) {
                // b is the arm of the pair that was declared first. a is compared with b.
                const auto &[b, b_series] = arms[i];
                const auto &[a, a_series] = arms[j];
                if (!wanted(a, b)) continue;
                const std::vector<double> sizes = common_sizes(a_series, b_series);
                const auto &[task, metric, protocol] = question;
                if (sizes.empty()) {
                    const auto same = [&, &task = task, &protocol = protocol, &a = a,
                                       &b = b](const Apart &one) {
                        return one.a == a && one.b == b && one.task == task &&
                               one.protocol == protocol;
                    };
                    if (std::none_of(out.apart.begin(), out.apart.end(), same))
                        out.apart.push_back({a, budgets_text(*a_series.front(), *a_series.back()),
                                             b, budgets_text(*b_series.front(), *b_series.back()),
                                             protocol, task, range_of(a_series),
                                             range_of(b_series)});
                }
                for (const double size : sizes) {
                    const AtBytes of_a = arm_at_bytes(a_series, size),
                                  of_b = arm_at_bytes(b_series, size);
                    Contrast c;
                    c.kind = Contrast::Kind::equal_bytes;
                    c.a = a;
                    c.a_budget = of_a.budget;
                    c.a_peak_bytes = of_a.peak_bytes;
                    c.b = b;
                    c.b_budget = of_b.budget;
                    c.b_peak_bytes = of_b.peak_bytes;
                    c.a_interpolated = of_a.interpolated;
                    c.b_interpolated = of_b.interpolated;
                    c.protocol = protocol;
                    c.task = task;
                    c.metric = metric;
                    c.meaning = a_series.front()->kind;
                    c.at_bytes = size;
                    measure_contrast(c, pair_points(of_a.points, of_b.points, names), statistics);
                    out.contrasts.push_back(std::move(c));
                }
            }
        }
    }
    return out;
}

std::vector<bool> pareto_front(const std::vector<std::pair<double, double>> &points,
                               bool higher_is_better) {
    std::vector<bool> out(points.size(), true);
    for (size_t i = 0; i < points.size(); ++i) {
        const double value = higher_is_better ? points[i].second : -points[i].second;
        for (const auto &[bytes, other] : points) {
            const double better = higher_is_better ? other : -other;
            if (bytes <= points[i].first && better >= value &&
                (bytes < points[i].first || better > value)) {
                out[i] = false;
                break;
            }
        }
    }
    return out;
}

} // namespace keel::ab
