#include "eval/ab/plan/hypotheses.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <tuple>

namespace keel::ab {
namespace {

class Enumerator {
  public:
    explicit Enumerator(const Experiment &e) : e_(e), c_(e.config) {}

    std::vector<Hypothesis> all() {
        for (const PlannedContrast &one : c_.contrasts) add(one);
        if (c_.contrasts.empty())
            for (const ArmEntry &arm : c_.arms)
                if (arm.name != c_.reference && arm.budgets.size() <= 1)
                    add({arm.name, c_.reference, ""});
        return std::move(out_);
    }

  private:
    void add(const PlannedContrast &one) {
        const bool has_reference = one.a == c_.reference || one.b == c_.reference;
        const std::string &a = one.a == c_.reference ? one.b : one.a,
                          &b = one.a == c_.reference ? one.a : one.b;
        for (const Run &first : e_.runs) {
            if (first.arm != a || first.is_rerun) continue;
            for (const Run &second : e_.runs) {
                if (second.arm != b || second.is_rerun) continue;
                // The reference evicts nothing, so the reference runs once, without a budget.
                if (!has_reference && first.budget != second.budget) continue;
                add_places(first, second, one.on.empty() ? c_.statistics.primary : one.on,
                           has_reference);
            }
        }
    }

    void add_places(const Run &a, const Run &b, const std::string &on, bool has_reference) {
        const size_t slash = on.find('/');
        const auto task = std::find_if(c_.tasks.begin(), c_.tasks.end(), [&](const Task &one) {
            return one.name == on.substr(0, slash);
        });
        if (task == c_.tasks.end() || slash == std::string::npos) return;
        Hypothesis h{a.arm, a.budget, b.arm, b.budget, "", task->name, on.substr(slash + 1)};
        h.is_size = has_reference && is_distance(h.metric);
        h.margin = margin_of(c_.statistics.margins, h.metric);
        if (task->kind == TaskKind::speed) {
            for (const int64_t length : task->at) {
                h.length = length;
                take(h);
            }
        } else if (task->kind == TaskKind::continuation) {
            take(h);
        } else {
            for (const Protocol protocol : c_.protocols) {
                h.protocol = protocol_name(protocol);
                take(h);
            }
        }
    }

    // If a pair of arms is listed twice, in any order, the pair has only one contrast.
    void take(const Hypothesis &h) {
        const bool is_ordered = std::tie(h.a, h.a_budget) < std::tie(h.b, h.b_budget);
        const std::string a = h.a + " " + h.a_budget, b = h.b + " " + h.b_budget;
        if (known_
                .emplace(is_ordered ? a : b, is_ordered ? b : a, h.protocol, h.task, h.metric,
                         h.length)
                .second)
            out_.push_back(h);
    }

    const Experiment &e_;
    const Config &c_;
    std::vector<Hypothesis> out_;
    std::set<std::tuple<std::string, std::string, std::string, std::string, std::string, int64_t>>
        known_;
};

std::string at_budget(const std::string &arm, const std::string &budget) {
    return budget == "full" ? arm : fmt::format("{} at {}", arm, budget);
}

} // namespace

std::vector<Hypothesis> hypotheses_of(const Experiment &experiment) {
    return Enumerator(experiment).all();
}

std::string hypothesis_text(const Hypothesis &h) {
    const std::string place = fmt::format(
        "{} against {} on {} {}{}{}", at_budget(h.a, h.a_budget), at_budget(h.b, h.b_budget),
        h.task, h.metric, h.length < 0 ? "" : fmt::format(" after {} tokens", h.length),
        h.protocol.empty() ? "" : fmt::format(" ({})", h.protocol));
    if (h.is_size) return place + ": a size with its interval, no test";
    return fmt::format(
        "{}: test of a difference from 0 (two-sided); non-inferior and equivalent by "
        "a margin of {}",
        place, margin_text(h.margin, metric_named(h.metric)));
}

uint64_t count_tests(const std::vector<Hypothesis> &hypotheses) {
    return static_cast<uint64_t>(std::count_if(hypotheses.begin(), hypotheses.end(),
                                               [](const Hypothesis &h) { return !h.is_size; }));
}

} // namespace keel::ab
