#include "eval/ab/verdicts/compare.hpp"

#include "base/display.hpp"
#include "eval/ab/verdicts/summary.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace keel::ab {

std::string text_of_comparison(const Comparison &c) {
    std::string out =
        fmt::format("A: {}\nB: {}\n{} contrasts decide: their intervals of {:g}% hold together, "
                    "and p is adjusted "
                    "by Holm's method.{}\n\n",
                    c.second, c.first, c.decided, 100 * c.statistics.confidence,
                    c.decided == c.contrasts.size() ? "" : " All others are exploratory.");
    std::vector<const Contrast *> differing;
    uint64_t equal = 0, reruns = 0, shown = 0;
    for (const Contrast &one : c.contrasts) {
        if (one.verdict == Verdict::equal) {
            ++equal;
            reruns += one.is_equal_rerun ? 1 : 0;
            shown += one.non_inferior ? 1 : 0;
        } else {
            differing.push_back(&one);
        }
    }
    constexpr size_t most = 60;
    // Deciding contrasts come first, the worst first.
    std::stable_sort(differing.begin(), differing.end(), [](const Contrast *a, const Contrast *b) {
        const auto rank = [](const Contrast &x) {
            return (x.beyond_margin               ? 0
                    : x.verdict == Verdict::worse ? 1
                    : !x.non_inferior             ? 2
                                                  : 3) +
                   (x.family == "decides" ? 0 : 4);
        };
        return rank(*a) < rank(*b);
    });
    const size_t all = differing.size();
    differing.resize(std::min(all, most));
    if (!differing.empty()) out += contrast_table(differing);
    if (all > most) out += fmt::format("... and {} more; --json shows all\n", all - most);
    if (equal > 0)
        out += fmt::format(
            "{}{} of {} contrasts are equal in every item, {} of these non-inferior{}\n",
            differing.empty() ? "" : "\n", equal, c.contrasts.size(), shown,
            reruns == 0 ? "" : fmt::format(" ({} of a rerun, equal to the bit)", reruns));
    for (const std::string &note : c.notes) out += fmt::format("note: {}\n", printable(note, 300));
    if (!c.label.empty()) return out + fmt::format("\nno verdict: {}\n", c.label);
    out += fmt::format(
        "\n{}: of {} contrasts that decide, {} are worse by more than the margin ({}), {} are not "
        "shown to be non-inferior{}\n",
        c.passed()    ? "passed"
        : c.worse > 0 ? "worse"
                      : "not passed",
        c.decided, c.worse, margins_text(c.contrasts), c.unproven,
        !c.strict                    ? ""
        : c.lost + c.lost_items == 0 ? " (--strict: these count)"
                                     : " (--strict: these and missing results count)");
    return out;
}

nlohmann::ordered_json comparison_json(const Comparison &c) {
    nlohmann::ordered_json j;
    j["format"] = "keel-ab-compare/1";
    j["a"] = c.second;
    j["b"] = c.first;
    j["passed"] = c.passed();
    if (!c.label.empty()) j["label"] = c.label;
    j["strict"] = c.strict;
    j["margins"] = margins_json(c.contrasts);
    j["confidence"] = c.statistics.confidence;
    j["same_config"] = c.same_config;
    j["same_experiment"] = c.same_experiment;
    j["decided"] = c.decided;
    j["worse"] = c.worse;
    j["unproven"] = c.unproven;
    j["lost"] = c.lost;
    j["lost_items"] = c.lost_items;
    j["contrasts"] = json_of_contrasts(c.contrasts);
    j["notes"] = c.notes;
    return j;
}

} // namespace keel::ab
