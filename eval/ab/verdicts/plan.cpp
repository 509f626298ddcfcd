#include "eval/ab/verdicts/plan.hpp"

#include "base/display.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace keel::ab {
namespace {

// True if `name` names this metric. `name` is "task/metric", or "task" for all metrics of a task.
bool is_named(const std::string &name, const std::string &task, const std::string &metric) {
    return name == task || name == task + "/" + metric;
}

bool is_pair(const PlannedContrast &planned, const std::string &a, const std::string &b) {
    return (planned.a == a && planned.b == b) || (planned.a == b && planned.b == a);
}

} // namespace

Plan::Plan(const Table &table)
    : primary_(table.header.statistics.primary), contrasts_(table.header.contrasts),
      sweeps_(table.header.sweeps) {
    if (!primary_.empty()) return;
    // Some older results have no primary metric. For these results, the first quality metric is
    // used.
    for (const Cell &cell : table.cells) {
        if (!cell.kind.is_quality() || cell.arm.ends_with(rerun_suffix)) continue;
        primary_ = cell.task + "/" + cell.metric;
        return;
    }
}

bool Plan::is_primary(const std::string &task, const std::string &metric) const {
    return is_named(primary_, task, metric);
}

bool Plan::has(const Contrast &c) const {
    if (c.kind == Contrast::Kind::equal_bytes || c.is_size) return false;
    if (is_default())
        return c.kind == Contrast::Kind::reference && is_primary(c.task, c.metric) &&
               std::find(sweeps_.begin(), sweeps_.end(), c.a) == sweeps_.end();
    return std::any_of(contrasts_.begin(), contrasts_.end(), [&](const PlannedContrast &one) {
        return is_pair(one, c.a, c.b) &&
               is_named(one.on.empty() ? primary_ : one.on, c.task, c.metric);
    });
}

bool Plan::lists(const std::string &a, const std::string &b) const {
    return is_default() || std::any_of(contrasts_.begin(), contrasts_.end(),
                                       [&](const auto &one) { return is_pair(one, a, b); });
}

bool Plan::is_reversed(const std::string &a, const std::string &b) const {
    const auto first = std::find_if(contrasts_.begin(), contrasts_.end(),
                                    [&](const auto &one) { return is_pair(one, a, b); });
    return first != contrasts_.end() && first->a == b;
}

void Plan::note_missing(const std::vector<Contrast> &contrasts,
                        std::vector<std::string> &notes) const {
    for (const PlannedContrast &one : contrasts_) {
        const std::string &on = one.on.empty() ? primary_ : one.on;
        const bool found = std::any_of(contrasts.begin(), contrasts.end(), [&](const auto &c) {
            return (c.is_listed || c.is_size) && is_pair(one, c.a, c.b) &&
                   is_named(on, c.task, c.metric);
        });
        if (!found)
            notes.push_back(fmt::format("the planned contrast of {} and {} on {} is missing: no "
                                        "budget has results of both arms",
                                        printable(one.a, 60), printable(one.b, 60),
                                        printable(on, 120)));
    }
    // In some older results, the primary metric is a whole task. Of the contrasts of a whole task,
    // some have a test and some have a size.
    bool is_size = false, is_test = false;
    for (const Contrast &c : contrasts) {
        if (!is_primary(c.task, c.metric)) continue;
        is_size = is_size || c.is_size;
        is_test = is_test || c.is_listed;
    }
    if (is_size && !is_test)
        notes.push_back(fmt::format("{} is a distance from the reference, so it has a size and no "
                                    "verdict; for verdicts, list pairs of arms in 'contrasts'",
                                    printable(primary_, 120)));
}

} // namespace keel::ab
