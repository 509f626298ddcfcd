#include "eval/ab/compare.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/ab/noise.hpp"
#include "eval/ab/summary.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

namespace fs = std::filesystem;

std::string describe(const AbTable &table, const fs::path &path) {
    const AbHeader &h = table.header;
    std::string out = printable(path.string(), 100);
    std::string what;
    for (const std::string *part : {&h.title, &h.version, &h.commit, &h.date})
        if (!part->empty()) what += fmt::format("{}{}", what.empty() ? "" : ", ", printable(*part, 60));
    return what.empty() ? out : fmt::format("{} ({})", out, what);
}

bool is_wanted(const std::vector<std::string> &list, const std::string &name) {
    return list.empty() || std::find(list.begin(), list.end(), name) != list.end();
}

// Options that name nothing would pass everything: that is a mistake, not a wish.
void check_names(const std::vector<std::string> &wanted, const AbTable &table, const char *option,
                 std::string AbCellKey::*member) {
    for (const std::string &name : wanted) {
        if (std::none_of(table.cells.begin(), table.cells.end(),
                         [&](const AbCell &cell) { return cell.*member == name; }))
            throw_error(ErrorKind::input, "{} {}: there are no results of it in {}", option,
                        printable(name, 60), "the first experiment");
    }
}

std::string cell_name(const AbCellKey &key) {
    std::string out;
    for (const std::string *part : {&key.arm, &key.budget, &key.protocol, &key.task, &key.metric})
        if (!part->empty()) out += fmt::format("{}{}", out.empty() ? "" : ", ", printable(*part, 60));
    return out;
}

bool is_whole(const AbContrast &c) {
    return c.items > 0 && c.identical == c.items && c.only_a + c.only_b == 0;
}

// Twenty equal hits prove nothing; equal bits do, where a difference of any size would have shown in them: the other contrasts of the same arm
// and budget that are equal, too, are then no sample of anything. One experiment run twice by one program is the same wherever all of its
// numbers are.
void find_equal_reruns(AbComparison &comparison) {
    if (!comparison.same_experiment) return;
    const auto decides = [](const AbContrast &c) { return c.meaning.is_quality(); };
    // nll, kld and perplexities; not 0 for all, as a reference's distance from itself is.
    const auto is_fine = [](const AbContrast &c) {
        return c.meaning.kind == AbMetric::Kind::divergence && c.mean_b != 0;
    };
    const bool all = comparison.same_config && comparison.lost == 0 &&
                     std::all_of(comparison.contrasts.begin(), comparison.contrasts.end(),
                                 [&](const AbContrast &c) { return !decides(c) || is_whole(c); });
    using Arm = std::pair<std::string, std::string>;
    std::map<Arm, bool> fine; // arm and budget: is all that could show a difference equal
    for (const AbContrast &c : comparison.contrasts) {
        if (!is_fine(c)) continue;
        const auto [at, is_new] = fine.try_emplace({c.a, c.a_budget}, true);
        at->second = at->second && is_whole(c);
    }
    for (AbContrast &c : comparison.contrasts) {
        const auto arm = fine.find({c.a, c.a_budget});
        c.is_equal_rerun = decides(c) && is_whole(c) && (all || (arm != fine.end() && arm->second));
    }
}

} // namespace

AbComparison compare_ab(const fs::path &first, const fs::path &second, const AbCompareOptions &options) {
    AbNames names;
    const AbTable before = load_ab_table(first, names), after = load_ab_table(second, names);
    check_names(options.arms, before, "--arm", &AbCellKey::arm);
    check_names(options.tasks, before, "--task", &AbCellKey::task);
    check_names(options.metrics, before, "--metric", &AbCellKey::metric);
    AbComparison out;
    out.strict = options.strict;
    out.statistics = before.header.statistics;
    if (options.margin) out.statistics.margin = *options.margin;
    if (options.confidence) out.statistics.confidence = *options.confidence;
    out.first = describe(before, first);
    out.second = describe(after, second);
    out.same_config = before.header.config_hash == after.header.config_hash;
    out.same_experiment = out.same_config || (!before.header.experiment_hash.empty() &&
                                              before.header.experiment_hash == after.header.experiment_hash);
    for (const auto &[what, a, b] : {std::tuple("models", &before.header.model, &after.header.model),
                                     std::tuple("machines", &before.header.machine, &after.header.machine)})
        if (*a != *b)
            out.notes.push_back(
                fmt::format("the {} differ: '{}' and '{}'", what, printable(*a, 100), printable(*b, 100)));
    for (const AbTable *table : {&before, &after})
        for (const std::string &note : table->notes)
            out.notes.push_back(fmt::format("{}: {}", table == &before ? "first" : "second", note));

    const AbNoise first_noise(before, names, out.statistics), second_noise(after, names, out.statistics);
    std::map<AbCellKey, const AbCell *> cells;
    for (const AbCell &cell : after.cells)
        cells[cell] = &cell;
    std::string lost;
    uint64_t missing = 0;
    for (const AbCell &cell : before.cells) {
        if (!is_wanted(options.arms, cell.arm) || !is_wanted(options.tasks, cell.task) ||
            !is_wanted(options.metrics, cell.metric) || cell.arm.ends_with(ab_rerun_suffix))
            continue;
        const auto found = cells.find(cell);
        const bool decides = cell.kind.is_quality() || options.speed;
        if (found == cells.end()) {
            if (out.lost++ == 0) lost = cell_name(cell);
            continue;
        }
        AbContrast c;
        c.kind = AbContrast::Kind::runs;
        c.a = c.b = cell.arm;
        c.a_budget = c.b_budget = cell.budget;
        c.protocol = cell.protocol;
        c.task = cell.task;
        c.metric = cell.metric;
        c.meaning = cell.kind;
        c.family = decides ? "decides" : "shown";
        for (AbContrast &one : contrast_cells(c, *found->second, cell, names, out.statistics)) {
            missing += one.only_a + one.only_b;
            one.noise = std::max(first_noise.of(one), second_noise.of(one));
            out.contrasts.push_back(std::move(one));
        }
    }
    if (out.contrasts.empty())
        throw_error(ErrorKind::input, "{} and {} have no arm, budget, task and metric in common",
                    printable(first.string(), 200), printable(second.string(), 200));
    find_equal_reruns(out);
    settle_verdicts(out.contrasts, out.statistics);
    for (const AbContrast &c : out.contrasts) {
        if (c.family != "decides") continue;
        ++out.decided;
        out.worse += c.beyond_margin ? 1 : 0;
        out.unproven += !c.beyond_margin && !c.within_margin ? 1 : 0;
    }
    if (out.lost > 0)
        out.notes.push_back(fmt::format(
            "{} of the first experiment's cells are not in the second ({} for one)", out.lost, lost));
    if (missing > 0)
        out.notes.push_back(
            fmt::format("{} items are in one of the experiments alone and left out of the pairs", missing));
    if (!out.same_config)
        out.notes.emplace_back(out.same_experiment
                                   ? "the config hashes differ: one experiment, run by two builds"
                                   : "the config hashes differ: another commit, model, text or experiment");
    return out;
}

std::string ab_comparison_text(const AbComparison &c) {
    std::string out = fmt::format("A: {}\nB: {}\n\n", c.second, c.first);
    std::vector<const AbContrast *> differing;
    uint64_t equal = 0, reruns = 0, shown = 0;
    for (const AbContrast &one : c.contrasts) {
        if (one.verdict == AbVerdict::equal) {
            ++equal;
            reruns += one.is_equal_rerun ? 1 : 0;
            shown += one.within_margin ? 1 : 0;
        } else {
            differing.push_back(&one);
        }
    }
    constexpr size_t most = 60;
    // What decides, and is worst, comes first.
    std::stable_sort(differing.begin(), differing.end(), [](const AbContrast *a, const AbContrast *b) {
        const auto rank = [](const AbContrast &x) {
            return (x.beyond_margin                 ? 0
                    : x.verdict == AbVerdict::worse ? 1
                    : !x.within_margin              ? 2
                                                    : 3) +
                   (x.family == "decides" ? 0 : 4);
        };
        return rank(*a) < rank(*b);
    });
    const size_t all = differing.size();
    differing.resize(std::min(all, most));
    if (!differing.empty()) out += ab_contrast_table(differing);
    if (all > most) out += fmt::format("... and {} more: --json has them\n", all - most);
    if (equal > 0)
        out += fmt::format("{}{} of {} contrasts are equal in every item, {} of these within the margin{}\n",
                           differing.empty() ? "" : "\n", equal, c.contrasts.size(), shown,
                           reruns == 0 ? "" : fmt::format(" ({} of a rerun, equal to the bit)", reruns));
    for (const std::string &note : c.notes)
        out += fmt::format("note: {}\n", printable(note, 300));
    out += fmt::format("\n{}: of {} contrasts that decide, {} are worse by more than the margin of {:g}, {} "
                       "are not shown to "
                       "be within it{}\n",
                       c.passed() ? "passed" : "worse", c.decided, c.worse, c.statistics.margin, c.unproven,
                       c.strict ? " (--strict: these count)" : "");
    return out;
}

nlohmann::ordered_json ab_comparison_json(const AbComparison &c) {
    nlohmann::ordered_json j;
    j["format"] = "keel-ab-compare/1";
    j["a"] = c.second;
    j["b"] = c.first;
    j["passed"] = c.passed();
    j["strict"] = c.strict;
    j["margin"] = c.statistics.margin;
    j["confidence"] = c.statistics.confidence;
    j["same_config"] = c.same_config;
    j["same_experiment"] = c.same_experiment;
    j["decided"] = c.decided;
    j["worse"] = c.worse;
    j["unproven"] = c.unproven;
    j["lost"] = c.lost;
    j["contrasts"] = ab_contrasts_json(c.contrasts);
    j["notes"] = c.notes;
    return j;
}

} // namespace keel
