#include "eval/ab/verdicts/power.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/page/text_table.hpp"
#include "eval/stats/distributions.hpp"
#include "eval/stats/power.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>

namespace keel::ab {
namespace {

using PowerAt = std::function<double(double documents)>;

struct PowerCurves {
    PowerAt find, non_inferior;
};

// Computes the power for hits and for all further shares. The variance of the test comes from the
// documents that differ.
PowerCurves curves_of_shares(const Contrast &c, double margin, double level) {
    const auto n = static_cast<double>(c.clusters);
    const double error = c.standard_error.value_or(0);
    // `seen` is the mean square of the documents' differences in the pilot. As in the test of the
    // verdict, one more document with a difference of 1 is added below. The reason is that in a
    // small pilot it is possible that no document differs.
    const double seen = error * error * (n - 1) + c.effect * c.effect;
    const double differ = static_cast<double>(c.gains + c.losses) * c.step;
    const double step = (n * seen + 1) / (differ + 1);
    // If the true difference is as large as the margin, some documents must differ. So `square` has
    // a lower bound.
    const double square = std::max((n * seen + 1) / (n + 1), margin * step);
    return {[=](double documents) { return power_of_score(margin, square, documents, level); },
            [=](double documents) {
                return power_of_non_inferiority(margin, square, step, documents, level);
            }};
}

// Returns how far the pilot's interval at `level` reaches below or above the mean, divided by the
// reach of Student's t. The verdict joins Student's t with bootstrap-t, so the interval of skewed
// numbers reaches farther. Returns 1 if the pilot has no such interval: its contrast is not
// planned, or it has too few resamples.
double reach_of_interval(const Contrast &c, double level, bool below) {
    if (!c.inference || c.standard_error.value_or(0) <= 0) return 1;
    const double mean = c.ratio ? std::log1p(c.effect) : c.effect;
    const Interval found = c.inference->at_tail(0.5 * level);
    const double reach = (below ? mean - found.low : found.high - mean) / *c.standard_error;
    const double student = student_quantile(1 - 0.5 * level, c.freedom);
    return std::isfinite(reach) ? std::max(1.0, reach / student) : 1;
}

// Computes the power for means and ratios. The spread does not depend on the difference.
PowerCurves curves_of_means(const Contrast &c, double margin, double level) {
    const auto n = static_cast<double>(c.clusters);
    const double spread = c.standard_error.value_or(0) * std::sqrt(n);
    // The margin on the scale of the test. For a ratio, this scale is the logarithm.
    const double distance = !c.ratio                     ? margin
                            : c.meaning.higher_is_better ? -std::log1p(-margin)
                                                         : std::log1p(margin);
    const double freedom = (c.freedom + 1) / n; // for each document; below 1 for trimmed means
    const auto power = [=](double reach) -> PowerAt {
        return [=](double documents) {
            // The effect of skewness shrinks with the root of the number of documents.
            const double wider = 1 + (reach - 1) * std::sqrt(n / documents);
            return power_of_t(distance, spread, documents, freedom * documents - 1, level, wider);
        };
    };
    // A loss is found if the interval does not reach from the loss back to 0. It is excluded if the
    // interval does not reach from 0 to the loss. If lower is better, a loss is above 0.
    const bool below = !c.meaning.higher_is_better;
    return {power(reach_of_interval(c, level, below)), power(reach_of_interval(c, level, !below))};
}

// Returns the reason why the pilot gives no power for the contrast. Empty: the pilot gives a power.
std::string why_unknown(const Contrast *c) {
    if (c == nullptr || c->items == 0) return "the pilot has no results of it";
    if (c->clusters < 2 || !c->standard_error) return "the pilot has fewer than two documents";
    if (c->meaning.ratio && !c->ratio) return "the pilot has a 0, so there is no ratio";
    if (!c->bounded && *c->standard_error <= 0) return "all differences in the pilot are equal";
    return {};
}

void fill_row(PowerRow &row, const Contrast *c, double level, double power) {
    row.unknown = why_unknown(c);
    if (c != nullptr) row.pilot_documents = c->clusters;
    if (row.unknown.empty() && row.hypothesis.margin <= 0) row.unknown = "the margin is 0";
    if (!row.unknown.empty()) return;
    const PowerCurves curves = c->bounded ? curves_of_shares(*c, row.hypothesis.margin, level)
                                          : curves_of_means(*c, row.hypothesis.margin, level);
    const uint64_t fewest = fewest_documents(*c); // with fewer documents there is no verdict
    const auto power_now = [&](const PowerAt &curve) {
        return row.documents < fewest ? 0 : curve(static_cast<double>(row.documents));
    };
    const auto needed = [&](const PowerAt &curve) {
        auto found = documents_for_power(power, curve);
        if (found) found = std::max(*found, fewest);
        return found;
    };
    row.find_power = power_now(curves.find);
    row.find_needed = needed(curves.find);
    row.non_inferior_power = power_now(curves.non_inferior);
    row.non_inferior_needed = needed(curves.non_inferior);
}

void check_power_margins(const PowerTable &table, const Margins &margins) {
    for (const auto &margin : margins) {
        const std::string &metric = margin.first;
        if (std::none_of(table.rows.begin(), table.rows.end(),
                         [&](const PowerRow &row) { return row.hypothesis.metric == metric; }))
            throw_error(ErrorKind::input, "--margin {}: no planned contrast has this metric",
                        printable(metric, 60));
    }
}

double margin_for(const Hypothesis &h, const PowerOptions &options) {
    const auto own = options.margins.find(h.metric);
    return own == options.margins.end() ? h.margin : own->second;
}

bool is_contrast_of(const Hypothesis &h, const Contrast &c) {
    return c.a == h.a && c.a_budget == h.a_budget && c.b == h.b && c.b_budget == h.b_budget &&
           c.protocol == h.protocol && c.task == h.task && c.metric == h.metric &&
           c.length == h.length;
}

std::string short_text(const Hypothesis &h) {
    return fmt::format("{} against {}", arm_text(h.a, h.a_budget), arm_text(h.b, h.b_budget));
}

std::string percent_text(double power) { return fmt::format("{:.0f}%", 100 * power); }

std::string needed_text(const std::optional<uint64_t> &needed) {
    return needed ? fmt::format("{}", *needed) : std::string("never");
}

} // namespace

PowerTable power_of_pilot(const Summary &pilot, const PowerOptions &options) {
    PowerTable table;
    table.power = options.power;
    std::vector<const Contrast *> planned;
    for (const Contrast &c : pilot.contrasts)
        if (c.is_listed) planned.push_back(&c);
    if (planned.empty())
        throw_error(ErrorKind::input, "the results have no planned contrast that is tested");
    table.tests = planned.size();
    table.level = (1 - pilot.header.statistics.confidence) / static_cast<double>(table.tests);
    for (const Contrast *c : planned) {
        PowerRow row;
        row.hypothesis = {c->a,        c->a_budget,
                          c->b,        c->b_budget,
                          c->protocol, c->task,
                          c->metric,   c->length,
                          false,       margin_of(pilot.header.statistics.margins, c->metric)};
        row.hypothesis.margin = margin_for(row.hypothesis, options);
        row.documents = c->clusters;
        fill_row(row, c, table.level, table.power);
        table.rows.push_back(std::move(row));
    }
    check_power_margins(table, options.margins);
    return table;
}

PowerTable power_of_experiment(const Summary &pilot, const Experiment &experiment,
                               const PlanRecord &plan, const PowerOptions &options) {
    PowerTable table;
    table.power = options.power;
    const std::vector<Hypothesis> hypotheses = hypotheses_of(experiment);
    table.tests = std::max<uint64_t>(count_tests(hypotheses), 1);
    table.level = (1 - experiment.config.statistics.confidence) / static_cast<double>(table.tests);
    for (const Hypothesis &h : hypotheses) {
        if (h.is_size) continue;
        PowerRow row;
        row.hypothesis = h;
        row.hypothesis.margin = margin_for(h, options);
        row.documents = plan.documents(h.task);
        const auto found = std::find_if(pilot.contrasts.begin(), pilot.contrasts.end(),
                                        [&](const Contrast &c) { return is_contrast_of(h, c); });
        fill_row(row, found == pilot.contrasts.end() ? nullptr : &*found, table.level, table.power);
        table.rows.push_back(std::move(row));
    }
    check_power_margins(table, options.margins);
    return table;
}

std::vector<std::string> PowerTable::warnings() const {
    constexpr uint64_t few = 20;
    std::vector<std::string> out;
    for (const PowerRow &row : rows) {
        const std::string name = fmt::format(
            "{} on {} {}{}", short_text(row.hypothesis), printable(row.hypothesis.task, 60),
            printable(row.hypothesis.metric, 60), protocol_text(row.hypothesis.protocol));
        const std::string margin =
            margin_text(row.hypothesis.margin, metric_named(row.hypothesis.metric));
        if (!row.unknown.empty()) {
            out.push_back(fmt::format("{}: the power is not known: {}", name, row.unknown));
            continue;
        }
        if (row.find_power < power)
            out.push_back(fmt::format(
                "{}: {} documents find a difference of {} with a power of {}, not {}; documents "
                "that are needed: {}",
                name, row.documents, margin, percent_text(row.find_power), percent_text(power),
                needed_text(row.find_needed)));
        if (row.pilot_documents < few)
            out.push_back(fmt::format("{}: the pilot has only {} documents, so its variance is "
                                      "uncertain, and so is the power",
                                      name, row.pilot_documents));
    }
    return out;
}

std::string power_text(const PowerTable &table) {
    TableRows rows = {{"planned contrast", "on", "margin", "documents", "power to find it",
                       "documents for " + percent_text(table.power), "power if equal",
                       "documents for " + percent_text(table.power)}};
    for (const PowerRow &row : table.rows) {
        const Hypothesis &h = row.hypothesis;
        const bool is_known = row.unknown.empty();
        rows.push_back({short_text(h),
                        fmt::format("{} {}{}{}", printable(h.task, 60), printable(h.metric, 60),
                                    h.length < 0 ? "" : fmt::format(" @{}", h.length),
                                    protocol_text(h.protocol)),
                        margin_text(h.margin, metric_named(h.metric)),
                        fmt::format("{}", row.documents),
                        is_known ? percent_text(row.find_power) : "-",
                        is_known ? needed_text(row.find_needed) : "-",
                        is_known ? percent_text(row.non_inferior_power) : "-",
                        is_known ? needed_text(row.non_inferior_needed) : "-"});
    }
    std::string out =
        left_table(rows) +
        fmt::format(
            "\n{} tests, each at the level {:.3g} (Holm's first step). \"Power to find it\": "
            "a true loss of the margin becomes \"worse\". \"Power if equal\": arms that do "
            "not differ become \"non-inferior\".\n",
            table.tests, table.level);
    for (const std::string &warning : table.warnings()) out += "warning: " + warning + "\n";
    return out;
}

nlohmann::ordered_json power_json(const PowerTable &table) {
    using Json = nlohmann::ordered_json;
    const auto needed = [](const std::optional<uint64_t> &n) { return n ? Json(*n) : Json(); };
    Json j;
    j["power"] = table.power;
    j["tests"] = table.tests;
    j["level"] = table.level;
    j["contrasts"] = Json::array();
    for (const PowerRow &row : table.rows) {
        const Hypothesis &h = row.hypothesis;
        Json one;
        one["a"] = h.a;
        one["a_budget"] = h.a_budget;
        one["b"] = h.b;
        one["b_budget"] = h.b_budget;
        one["protocol"] = h.protocol;
        one["task"] = h.task;
        one["metric"] = h.metric;
        if (h.length >= 0) one["length"] = h.length;
        one["margin"] = h.margin;
        one["documents"] = row.documents;
        one["pilot_documents"] = row.pilot_documents;
        if (row.unknown.empty()) {
            one["find_power"] = row.find_power;
            one["find_documents"] = needed(row.find_needed);
            one["non_inferior_power"] = row.non_inferior_power;
            one["non_inferior_documents"] = needed(row.non_inferior_needed);
        } else {
            one["unknown"] = row.unknown;
        }
        j["contrasts"].push_back(std::move(one));
    }
    j["warnings"] = table.warnings();
    return j;
}

} // namespace keel::ab
