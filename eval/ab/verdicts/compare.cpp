#include "eval/ab/verdicts/compare.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"
#include "eval/ab/verdicts/labels.hpp"
#include "eval/ab/verdicts/noise.hpp"
#include "eval/ab/verdicts/summary.hpp"
#include "eval/stats/bootstrap_t.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>

namespace keel::ab {
namespace {

namespace fs = std::filesystem;

std::string describe(const Table &table, const fs::path &path) {
    const Header &h = table.header;
    std::string out = printable(path.string(), 100);
    std::string what;
    for (const std::string *part : {&h.title, &h.version, &h.commit, &h.date})
        if (!part->empty())
            what += fmt::format("{}{}", what.empty() ? "" : ", ", printable(*part, 60));
    return what.empty() ? out : fmt::format("{} ({})", out, what);
}

bool is_wanted(const std::vector<std::string> &list, const std::string &name) {
    return list.empty() || std::find(list.begin(), list.end(), name) != list.end();
}

// Checks the names in an option. A wrong name would select no contrast, and a comparison without
// contrasts always passes.
void check_names(const std::vector<std::string> &wanted, const Table &table, const char *option,
                 std::string CellKey::*member) {
    std::set<std::string> all;
    for (const Cell &cell : table.cells) all.insert(cell.*member);
    for (const std::string &name : wanted) {
        if (all.contains(name)) continue;
        const std::vector<std::string> names(all.begin(), all.end());
        const std::string near = did_you_mean(name, names);
        throw_error(
            ErrorKind::input,
            "{} {}: expected a name from the first experiment, found no results with this name{}",
            option, printable(name, 60),
            !near.empty()        ? near
            : names.size() <= 20 ? fmt::format(", which has {}", fmt::join(names, ", "))
                                 : std::string());
    }
}

void check_margins(const Margins &margins, const Table &table) {
    std::vector<std::string> metrics;
    for (const auto &[metric, margin] : margins) metrics.push_back(metric);
    check_names(metrics, table, "--margin", &CellKey::metric);
}

std::string cell_name(const CellKey &key) {
    std::string out;
    for (const std::string *part : {&key.arm, &key.budget, &key.protocol, &key.task, &key.metric})
        if (!part->empty())
            out += fmt::format("{}{}", out.empty() ? "" : ", ", printable(*part, 60));
    return out;
}

bool is_whole(const Contrast &c) {
    return c.items > 0 && c.identical == c.items && c.only_a + c.only_b == 0;
}

using Cells = std::map<CellKey, const Cell *>;

const Cell *find(const Cells &cells, const CellKey &key) {
    const auto at = cells.find(key);
    return at == cells.end() ? nullptr : at->second;
}

// True if both cells have the same items with equal numbers.
bool is_same(const Cell &first, const Cell *second, const Names &names) {
    if (second == nullptr) return false;
    const Pairs pairs = pair_points(second->points, first.points, names);
    return !pairs.a.empty() && pairs.only_a + pairs.only_b == 0 && pairs.a == pairs.b;
}

// Finds the contrasts that are equal reruns. Equal hits alone are no proof, because different
// computations can give the same hits. nll, kld and perplexities show any difference in the
// computation. If all nll, kld and perplexities of an arm at a budget have equal bits, all equal
// contrasts of this arm and budget are equal reruns. If the same build of Keel ran one experiment
// twice (same_config), it is enough that the quality numbers of all cells are equal. Cells that the
// options do not select must be equal too.
void find_equal_reruns(Comparison &comparison, const Table &before, const Cells &after,
                       const Names &names) {
    if (!comparison.same_experiment) return;
    bool all = comparison.same_config;
    using Arm = std::pair<std::string, std::string>;
    // For each arm and budget: true if all numbers of the divergence metrics are equal.
    std::map<Arm, bool> fine;
    for (const Cell &cell : before.cells) {
        if (!cell.kind.is_quality() || cell.arm.ends_with(rerun_suffix)) continue;
        const bool same = is_same(cell, find(after, cell), names);
        all = all && same;
        // Uses nll, kld and perplexities. Cells in which all numbers are 0 do not count, because
        // the reference's kld from itself is always 0.
        if (cell.kind.kind != Metric::Kind::divergence ||
            std::all_of(cell.points.begin(), cell.points.end(),
                        [](const Point &p) { return p.value == 0; }))
            continue;
        const auto [at, is_new] = fine.try_emplace({cell.arm, cell.budget}, true);
        at->second = at->second && same;
    }
    for (Contrast &c : comparison.contrasts) {
        const auto arm = fine.find({c.a, c.a_budget});
        c.is_equal_rerun =
            c.meaning.is_quality() && is_whole(c) && (all || (arm != fine.end() && arm->second));
    }
}

// Throws Error(input) if items have the same name but different contents. Names of items are mostly
// numbers, so experiments with different lengths, seeds or texts have the same names. Returns the
// number of prompts whose lengths differ because the two models split the text into different
// tokens.
uint64_t check_items(const Cell &first, const Cell &second, bool same_model, const Names &names) {
    uint64_t other_lengths = 0;
    for (size_t i = 0, j = 0; i < first.points.size() && j < second.points.size();) {
        const Point &a = first.points[i], &b = second.points[j];
        i += a.item <= b.item ? 1 : 0;
        j += b.item <= a.item ? 1 : 0;
        if (a.item != b.item) continue;
        std::string what;
        if (a.expected != b.expected) {
            what = fmt::format(
                "the expected answer is '{}' in the first experiment, '{}' in the second",
                printable(names.text(a.expected), 60), printable(names.text(b.expected), 60));
        } else if (a.cluster != b.cluster || a.depth != b.depth) {
            what = "the document or the depth differs";
        } else if (a.length != b.length && same_model) {
            what = fmt::format("the prompt has {} tokens in the first experiment, {} in the second",
                               a.length, b.length);
        }
        if (!what.empty())
            throw_error(ErrorKind::input,
                        "the experiments have different items: task '{}', item {}: {}; compare "
                        "results with the same "
                        "tasks, lengths, seeds and texts",
                        printable(first.task, 60), printable(names.text(a.item), 60), what);
        other_lengths += a.length != b.length ? 1 : 0;
    }
    return other_lengths;
}

// Chooses the cells of the first experiment that are compared, and the cells whose contrasts
// decide.
class CellChoice {
  public:
    CellChoice(const Table &before, const Cells &after, const CompareOptions &options)
        : before_(before), after_(after), options_(options) {}

    bool is_chosen(const Cell &cell) const {
        return is_wanted(options_.arms, cell.arm) && is_wanted(options_.tasks, cell.task) &&
               is_wanted(options_.metrics, cell.metric) && !cell.arm.ends_with(rerun_suffix);
    }

    bool decides(const Cell &cell) const {
        const bool is_definition = cell.arm == before_.header.reference && is_distance(cell.metric);
        return !is_definition && (cell.kind.is_quality() || options_.speed);
    }

    // The number of deciding contrasts.
    uint64_t deciding() const {
        uint64_t found = 0;
        for (const Cell &cell : before_.cells) {
            if (!is_chosen(cell) || !decides(cell) || find(after_, cell) == nullptr) continue;
            std::set<int64_t> lengths;
            if (cell.kind.kind == Metric::Kind::speed)
                for (const Point &point : cell.points) lengths.insert(point.length);
            found += std::max<size_t>(lengths.size(), 1);
        }
        return found;
    }

  private:
    const Table &before_;
    const Cells &after_;
    const CompareOptions &options_;
};

// If a contrast has no interval, no loss can be shown. So this function adds a note about contrasts
// without an interval.
void note_undecided(Comparison &comparison) {
    uint64_t undecided = 0;
    for (const Contrast &c : comparison.contrasts)
        undecided +=
            c.family == "decides" && c.items > 0 && !c.interval && !c.is_equal_rerun ? 1 : 0;
    if (undecided > 0)
        comparison.notes.push_back(fmt::format(
            "{} of the deciding contrasts have no interval, so they cannot show a loss: there "
            "are too few documents, or too few documents that differ",
            undecided));
}

} // namespace

Comparison compare_results(const fs::path &first, const fs::path &second,
                           const CompareOptions &options) {
    Names names;
    const Table before = load_table(first, names), after = load_table(second, names);
    check_names(options.arms, before, "--arm", &CellKey::arm);
    check_names(options.tasks, before, "--task", &CellKey::task);
    check_names(options.metrics, before, "--metric", &CellKey::metric);
    Comparison out;
    out.strict = options.strict;
    out.statistics = before.header.statistics;
    check_margins(options.margins, before);
    for (const auto &[metric, margin] : options.margins) out.statistics.margins[metric] = margin;
    if (options.confidence) out.statistics.confidence = *options.confidence;
    out.first = describe(before, first);
    out.second = describe(after, second);
    out.same_config = before.header.config_hash == after.header.config_hash;
    out.same_experiment =
        out.same_config || (!before.header.experiment_hash.empty() &&
                            before.header.experiment_hash == after.header.experiment_hash);
    for (const auto &[what, a, b] :
         {std::tuple("models", &before.header.model, &after.header.model),
          std::tuple("machines", &before.header.machine, &after.header.machine)})
        if (*a != *b)
            out.notes.push_back(fmt::format("the experiments have different {}: '{}' and '{}'",
                                            what, printable(*a, 100), printable(*b, 100)));
    for (const Table *table : {&before, &after})
        for (const std::string &note : table->notes)
            out.notes.push_back(fmt::format("{}: {}", table == &before ? "first" : "second", note));

    Cells cells;
    for (const Cell &cell : after.cells) cells[cell] = &cell;
    const CellChoice choice(before, cells, options);
    // A comparison can have hundreds of contrasts. With hundreds of contrasts, intervals reach
    // farther into the tails than with a few planned contrasts, so more resamples are needed.
    constexpr uint64_t most_resamples = 1'000'000;
    out.statistics.resamples = std::max(
        out.statistics.resamples,
        std::min(most_resamples, resamples_needed(out.statistics.confidence, choice.deciding())));
    const Noise first_noise(before, names, out.statistics),
        second_noise(after, names, out.statistics);
    std::string lost;
    uint64_t added = 0, other_lengths = 0;
    for (const Cell &cell : before.cells) {
        if (!choice.is_chosen(cell)) continue;
        const Cell *found = find(cells, cell);
        const bool decides = choice.decides(cell);
        if (found == nullptr) {
            if (out.lost++ == 0) lost = cell_name(cell);
            continue;
        }
        other_lengths +=
            check_items(cell, *found, before.header.model == after.header.model, names);
        Contrast c;
        c.kind = Contrast::Kind::runs;
        c.a = c.b = cell.arm;
        c.a_budget = c.b_budget = cell.budget;
        c.protocol = cell.protocol;
        c.task = cell.task;
        c.metric = cell.metric;
        c.meaning = cell.kind;
        c.planned = decides;
        c.family = decides ? "decides" : "shown";
        for (Contrast &one : contrast_cells(c, *found, cell, names, out.statistics)) {
            added += one.only_a;
            out.lost_items += one.only_b;
            one.noise = std::max(first_noise.of(one), second_noise.of(one));
            for (const Table *table : {&before, &after}) {
                if (one.label.empty()) label_contrast(table->header, one);
            }
            if (decides && out.label.empty()) out.label = one.label;
            out.contrasts.push_back(std::move(one));
        }
    }
    if (out.contrasts.empty())
        throw_error(ErrorKind::input,
                    "{} and {}: expected an arm, budget, task and metric in common, found none",
                    printable(first.string(), 200), printable(second.string(), 200));
    find_equal_reruns(out, before, cells, names);
    settle_verdicts(out.contrasts, out.statistics);
    for (const Contrast &c : out.contrasts) {
        if (c.family != "decides") continue;
        ++out.decided;
        out.worse += c.beyond_margin ? 1 : 0;
        out.unproven += !c.beyond_margin && !c.non_inferior ? 1 : 0;
    }
    note_undecided(out);
    if (out.lost > 0)
        out.notes.push_back(
            fmt::format("{} combinations of arm, budget, task and metric of the first experiment "
                        "are missing in the second (for example {})",
                        out.lost, lost));
    if (out.lost_items > 0)
        out.notes.push_back(fmt::format(
            "{} numbers of the first experiment's items are missing in the second; they are "
            "not compared",
            out.lost_items));
    if (added > 0)
        out.notes.push_back(fmt::format("{} numbers of the second experiment's items are missing "
                                        "in the first; they are not compared",
                                        added));
    if (other_lengths > 0)
        out.notes.push_back(fmt::format(
            "{} prompts have another length in the second experiment, because the models "
            "differ; another tokenizer may give another text",
            other_lengths));
    if (plan_name(before.header) != plan_name(after.header))
        out.notes.push_back(fmt::format("the first has {}, the second has {}",
                                        plan_name(before.header), plan_name(after.header)));
    if (before.header.batch != after.header.batch)
        out.notes.push_back(fmt::format(
            "the experiments used batch {} and batch {}; numbers may be rounded differently "
            "in batches of another size",
            before.header.batch, after.header.batch));
    if (!out.same_config) {
        const std::string library = other_library(before.header, after.header);
        out.notes.push_back(fmt::format(
            "the config hashes differ: {}{}",
            out.same_experiment ? "the same experiment, run by two builds of Keel"
                                : "another commit, model, text or experiment",
            library.empty() ? "" : fmt::format("; each was run with another {}", library)));
    }
    return out;
}

} // namespace keel::ab
