#include "eval/ab/verdicts/summary.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/ab/verdicts/cells.hpp"
#include "eval/ab/verdicts/labels.hpp"
#include "eval/ab/verdicts/noise.hpp"
#include "eval/ab/verdicts/plan.hpp"
#include "eval/ab/verdicts/warnings.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

namespace keel::ab {
namespace {

// Limit for the contrasts of pairs of arms at a budget. If there are more pairs, only contrasts on
// the primary task are made, and a note reports this restriction.
constexpr size_t most_pair_contrasts = 3000;
constexpr size_t most_equal_bytes_arms = 8;

bool is_rerun(const Cell &cell) { return cell.arm.ends_with(rerun_suffix); }

class Builder {
  public:
    Builder(const Table &table, const Names &names, LookBook *looks)
        : table_(table), names_(names), looks_(looks), plan_(table) {
        out_.header = table.header;
        out_.records = table.records;
        out_.notes = table.notes;
        for (const Cell &cell : table.cells) by_key_[cell] = &cell;
    }

    Summary build() {
        if (table_.cells.empty())
            throw_error(ErrorKind::input, "the results have no items, because the experiment ended "
                                          "before the first one; run it again");
        for (const Cell &cell : table_.cells)
            out_.cells.push_back(summarize_cell(cell, statistics()));
        mark_fronts();
        add_speeds();
        noise_ = Noise(table_, names_, statistics());
        out_.noise = noise_.contrasts();
        for (Contrast &c : out_.noise) c.label = label_of(table_.header, c);
        settle_verdicts(out_.noise, statistics());
        add_reference_contrasts();
        add_pair_contrasts();
        // A planned contrast that is not measured yet counts in the adjustment. Otherwise an early
        // report would test at a higher level than the plan allows.
        settle_verdicts(out_.contrasts, statistics(),
                        table_.header.plan ? table_.header.plan->tests() : 0);
        plan_.note_missing(out_.contrasts, out_.notes);
        add_equal_bytes();
        out_.warnings = table_.warnings;
        out_.primary = plan_.primary();
        find_warnings(out_);
        return std::move(out_);
    }

  private:
    const Statistics &statistics() const { return table_.header.statistics; }
    const std::string &reference() const { return table_.header.reference; }

    const Cell *find(CellKey key) const {
        const auto at = by_key_.find(key);
        return at == by_key_.end() ? nullptr : at->second;
    }

    std::vector<Contrast> measure(Contrast::Kind kind, const Cell &a, const Cell &b,
                                  bool implied = false) {
        Contrast c;
        c.kind = kind;
        c.a = a.arm;
        c.a_budget = a.budget;
        c.b = b.arm;
        c.b_budget = b.budget;
        c.protocol = a.protocol;
        c.task = a.task;
        c.metric = a.metric;
        c.meaning = a.kind;
        c.implied = implied;
        c.is_size = kind == Contrast::Kind::reference && is_distance(a.metric);
        c.planned = c.is_listed = plan_.has(c);
        c.family = c.planned ? "planned" : "exploratory";
        std::vector<Contrast> out = contrast_cells(c, a, b, names_, statistics());
        for (Contrast &one : out) {
            one.noise = noise_.of(one);
            label_contrast(table_.header, one, looks_);
        }
        return out;
    }

    // Returns the reference's cell that belongs to the cell of an arm: the cell at the same budget,
    // or the cell with the whole cache if there is no cell at the same budget.
    const Cell *reference_of(const Cell &cell) const {
        for (const std::string &budget : {cell.budget, std::string("full")})
            if (const Cell *found =
                    find({reference(), budget, cell.protocol, cell.task, cell.metric}))
                return found;
        return nullptr;
    }

    // Makes the cell with the reference's distance from itself, if this distance was not measured.
    std::optional<Cell> implied_reference(const Cell &cell) const {
        if (!is_distance(cell.metric)) return std::nullopt;
        const bool known =
            std::any_of(table_.cells.begin(), table_.cells.end(), [&](const Cell &other) {
                return other.arm == reference() && other.task == cell.task &&
                       other.protocol == cell.protocol;
            });
        if (!known) return std::nullopt;
        Cell implied = cell;
        implied.arm = reference();
        implied.budget = "full";
        for (Point &point : implied.points) point.value = cell.metric == "top1" ? 1 : 0;
        return implied;
    }

    void add(std::vector<Contrast> found) {
        std::move(found.begin(), found.end(), std::back_inserter(out_.contrasts));
    }

    void mark_fronts() {
        std::map<std::tuple<std::string, std::string, std::string>, std::vector<size_t>> groups;
        for (size_t i = 0; i < out_.cells.size(); ++i) {
            const Cell &cell = *out_.cells[i].cell;
            if (cell.kind.is_quality() && cell.kv_bytes > 0 && !is_rerun(cell))
                groups[{cell.protocol, cell.task, cell.metric}].push_back(i);
        }
        for (const auto &[key, members] : groups) {
            std::vector<std::pair<double, double>> held, peak;
            for (const size_t i : members) {
                const Cell &cell = *out_.cells[i].cell;
                held.emplace_back(cell.kv_bytes, out_.cells[i].mean);
                peak.emplace_back(static_cast<double>(cell.peak_kv_bytes), out_.cells[i].mean);
            }
            const bool up = out_.cells[members[0]].cell->kind.higher_is_better;
            const auto front = pareto_front(held, up), peak_front = pareto_front(peak, up);
            for (size_t i = 0; i < members.size(); ++i) {
                out_.cells[members[i]].on_front = front[i];
                out_.cells[members[i]].on_peak_front = peak_front[i];
            }
        }
    }

    void add_speeds() {
        for (const Cell &cell : table_.cells) {
            if (cell.kind.kind != Metric::Kind::speed) continue;
            std::map<int64_t, std::vector<double>> by_length;
            for (const Point &point : cell.points) by_length[point.length].push_back(point.value);
            for (auto &[length, values] : by_length) {
                SpeedRow row;
                row.key = cell;
                row.length = length;
                row.items = values.size();
                fill_quantiles(row, std::move(values));
                out_.speeds.push_back(std::move(row));
            }
        }
    }

    void add_reference_contrasts() {
        if (reference().empty()) {
            out_.notes.push_back(
                "no reference was declared, so arms are compared only with each other");
            return;
        }
        std::set<std::string> unmatched;
        for (const Cell &cell : table_.cells) {
            if (cell.arm == reference() || is_rerun(cell)) continue;
            if (const Cell *b = reference_of(cell)) {
                add(measure(Contrast::Kind::reference, cell, *b));
            } else if (const auto implied = implied_reference(cell)) {
                add(measure(Contrast::Kind::reference, cell, *implied, true));
            } else {
                unmatched.insert(
                    cell.protocol.empty()
                        ? fmt::format("{} {}", cell.task, cell.metric)
                        : fmt::format("{} {} ({})", cell.task, cell.metric, cell.protocol));
            }
        }
        for (const std::string &what : unmatched)
            out_.notes.push_back(fmt::format(
                "the reference '{}' has no results for {}, so no arm is compared with it there",
                printable(reference(), 60), printable(what, 120)));
    }

    void add_pair_contrasts() {
        // The cells with the same protocol, task, metric and budget, in the order of the arms.
        std::map<std::tuple<std::string, std::string, std::string, std::string>,
                 std::vector<const Cell *>>
            groups;
        std::vector<const std::vector<const Cell *> *> order;
        for (const Cell &cell : table_.cells) {
            if (cell.arm == reference() || is_rerun(cell)) continue;
            auto &group = groups[{cell.task, cell.metric, cell.protocol, cell.budget}];
            if (group.empty()) order.push_back(&group);
            group.push_back(&cell);
        }
        std::vector<std::pair<const Cell *, const Cell *>> all;
        for (const auto *group : order)
            for (size_t i = 0; i < group->size(); ++i)
                for (size_t j = i + 1; j < group->size(); ++j) {
                    const Cell *a = (*group)[j], *b = (*group)[i];
                    if (!plan_.lists(a->arm, b->arm)) continue;
                    if (plan_.is_reversed(a->arm, b->arm)) std::swap(a, b);
                    all.emplace_back(a, b);
                }
        if (plan_.is_default() && all.size() > most_pair_contrasts) {
            const size_t before = all.size();
            std::erase_if(all, [&](const auto &pair) {
                const Cell &cell = *pair.first;
                return !plan_.is_primary(cell.task, cell.metric);
            });
            if (all.size() > most_pair_contrasts) all.resize(most_pair_contrasts);
            out_.notes.push_back(fmt::format("{} pairs of arms are more than {}: only {} are "
                                             "compared, on the primary metric; list "
                                             "the important pairs in 'contrasts'",
                                             before, most_pair_contrasts, all.size()));
        }
        for (const auto &[a, b] : all) add(measure(Contrast::Kind::pair, *a, *b));
    }

    void add_equal_bytes() {
        std::map<std::string, std::set<std::string>> budgets;
        for (const Cell &cell : table_.cells)
            if (!is_rerun(cell)) budgets[cell.arm].insert(cell.budget);
        const auto is_plain = [&](const std::string &arm) {
            const auto &of = budgets.at(arm);
            return of.size() == 1 && of.contains("full");
        };
        const bool few = budgets.size() <= most_equal_bytes_arms;
        const auto wanted = [&](const std::string &a, const std::string &b) {
            if ((a == reference() && is_plain(a)) || (b == reference() && is_plain(b)))
                return false;
            if (is_plain(a) && is_plain(b)) return false; // neither arm has several sizes
            if (!plan_.is_default() && plan_.lists(a, b)) return true;
            return is_plain(a) || is_plain(b) || (few && plan_.is_default());
        };
        if (!few && plan_.is_default())
            out_.notes.push_back("there are many arms, so at equal bytes arms are compared only "
                                 "with arms that evict "
                                 "nothing; list other pairs in 'contrasts'");
        EqualBytes found = compare_at_equal_bytes(table_, names_, statistics(), wanted);
        for (Contrast &c : found.contrasts) {
            c.family = "exploratory";
            c.noise = noise_.of(c);
            label_contrast(table_.header, c);
        }
        settle_verdicts(found.contrasts, statistics());
        out_.equal_bytes = std::move(found.contrasts);
        out_.apart = std::move(found.apart);
        note_peaks();
    }

    // Returns an arm and its budget as text, for example "snapkv at tokens:128". Adds " (prefill of
    // its own)" if the arm shares no prefill.
    std::string prefill_text(const std::string &arm, const std::string &budget) const {
        const auto &own = table_.header.own_prefills;
        const bool is_own =
            std::any_of(own.begin(), own.end(), [&](const auto &one) { return one.first == arm; });
        return arm_text(arm, budget) + (is_own ? " (prefill of its own)" : "");
    }

    // Adds a note about the pair of arms with the largest difference between the peaks. Two arms
    // that hold the same bytes while items are scored can have had different peaks before.
    void note_peaks() {
        constexpr double alike = 1.1;
        double most = alike;
        const Contrast *farthest = nullptr;
        for (const Contrast &c : out_.equal_bytes) {
            const double low = std::min(c.a_peak_bytes, c.b_peak_bytes);
            const double times = std::max(c.a_peak_bytes, c.b_peak_bytes) / std::max(low, 1.0);
            if (times <= most) continue;
            most = times;
            farthest = &c;
        }
        if (farthest == nullptr) return;
        const Contrast &c = *farthest;
        const bool a_more = c.a_peak_bytes > c.b_peak_bytes;
        const std::string a = prefill_text(c.a, c.a_budget), b = prefill_text(c.b, c.b_budget);
        out_.notes.push_back(fmt::format(
            "arms that hold the same bytes while items are scored can have different peaks: on "
            "{}{}, both arms hold {}, but {} held up to {}, {:.0f}% more than {} with {}",
            printable(c.task, 60), protocol_text(c.protocol), bytes_text(c.at_bytes),
            a_more ? a : b, bytes_text(std::max(c.a_peak_bytes, c.b_peak_bytes)), 100 * (most - 1),
            a_more ? b : a, bytes_text(std::min(c.a_peak_bytes, c.b_peak_bytes))));
    }

    const Table &table_;
    const Names &names_;
    LookBook *looks_;
    Plan plan_;
    Summary out_;
    std::map<CellKey, const Cell *> by_key_;
    Noise noise_;
};

} // namespace

Summary summarize(const Table &table, const Names &names, LookBook *looks) {
    return Builder(table, names, looks).build();
}

} // namespace keel::ab
