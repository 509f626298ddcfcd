#include "eval/ab/verdicts/warnings.hpp"

#include "base/display.hpp"
#include "eval/stats/bootstrap_t.hpp"
#include "eval/stats/mean_inference.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <tuple>

namespace keel::ab {
namespace {

constexpr double saves_nothing = 0.99, much_more = 1.1;
// limit for the resamples that this warning recommends
constexpr uint64_t most_resamples = 1'000'000;
class Finder {
  public:
    explicit Finder(Summary &summary) : out_(summary) {}

    void find() {
        for (const CellSummary &one : out_.cells) {
            look_at_reference(one);
            look_at_memory(*one.cell);
            look_at_peak(*one.cell);
            look_at_records(*one.cell);
        }
        for (const Contrast &c : out_.contrasts) look_at_pairs(c);
        look_at_noise();
    }

  private:
    bool add(const std::string &arm, const std::string &budget, const std::string &protocol,
             const std::string &task, std::string text) {
        if (!said_.emplace(arm, budget, protocol, task, text).second) return false;
        out_.warnings.push_back({arm, budget, protocol, task, std::move(text)});
        return true;
    }

    void look_at_reference(const CellSummary &one) {
        const Cell &cell = *one.cell;
        if (cell.arm != out_.header.reference || cell.kind.kind != Metric::Kind::quality ||
            cell.metric == "top1")
            return;
        if (one.mean < reference_floor)
            add(cell.arm, cell.budget, cell.protocol, cell.task,
                fmt::format("the reference itself reaches only {:.3f} in {}; if the reference is "
                            "below {}, the losses of policies mean little",
                            one.mean, printable(cell.metric, 60), reference_floor));
    }

    // An arm with a budget should evict and save memory. An arm without a budget does not have to
    // evict.
    void look_at_memory(const Cell &cell) {
        if (cell.budget == "full" || !cell.kind.is_quality() || cell.records == 0) return;
        if (cell.without_eviction == cell.records) {
            add(cell.arm, cell.budget, cell.protocol, cell.task,
                "nothing was evicted, because the budget was never reached; the arm equals the "
                "full cache");
        } else if (cell.without_eviction > 0) {
            add(cell.arm, cell.budget, cell.protocol, cell.task,
                fmt::format("nothing was evicted in {} of {} items", cell.without_eviction,
                            cell.records));
        }
        if (cell.without_eviction < cell.records && cell.own_full_kv_bytes > 0 &&
            cell.kv_bytes >= saves_nothing * cell.own_full_kv_bytes)
            add(cell.arm, cell.budget, cell.protocol, cell.task,
                fmt::format("slots were evicted but no memory was saved: the arm holds {} of {}{}",
                            format_bytes(static_cast<uint64_t>(cell.kv_bytes)),
                            format_bytes(static_cast<uint64_t>(cell.own_full_kv_bytes)),
                            beside(cell)));
    }

    // While a prompt is read, a policy can hold more memory than its evictions save later.
    void look_at_peak(const Cell &cell) {
        if (cell.budget == "full" || !cell.kind.is_quality()) return;
        const auto full =
            std::find_if(out_.cells.begin(), out_.cells.end(), [&](const CellSummary &other) {
                const Cell &c = *other.cell;
                return c.arm == out_.header.reference && c.task == cell.task &&
                       c.protocol == cell.protocol && c.metric == cell.metric;
            });
        if (full == out_.cells.end()) return;
        const uint64_t peak = full->cell->peak_kv_bytes;
        if (static_cast<double>(cell.peak_kv_bytes) <= much_more * static_cast<double>(peak))
            return;
        add(cell.arm, cell.budget, cell.protocol, cell.task,
            fmt::format(
                "the arm's peak was {} (cache and policy data), but the reference never held "
                "more than {}",
                format_bytes(cell.peak_kv_bytes), format_bytes(peak)));
    }

    static std::string beside(const Cell &cell) {
        if (cell.policy_bytes < 1) return {};
        return fmt::format(", {} of it for the policy's data",
                           format_bytes(static_cast<uint64_t>(cell.policy_bytes)));
    }

    void look_at_records(const Cell &cell) {
        if (cell.contradicting > 0)
            add(cell.arm, cell.budget, cell.protocol, cell.task,
                fmt::format("{} {} recorded twice with different {} (for example '{}'); the first "
                            "record counts",
                            cell.contradicting, cell.contradicting == 1 ? "item was" : "items were",
                            printable(cell.metric, 60), printable(cell.contradiction, 60)));
    }

    void look_at_pairs(const Contrast &c) {
        const uint64_t missing = c.only_a + c.only_b;
        if (missing > 0)
            add(c.a, c.a_budget, c.protocol, c.task,
                fmt::format("{} of {} items of {} are not in both this arm and {} ({} only here, "
                            "{} only there; "
                            "for example '{}'); they are not compared",
                            missing, missing + c.items, printable(c.metric, 60), printable(c.b, 60),
                            c.only_a, c.only_b, printable(c.missing, 60)));
        look_at_documents(c);
        if (c.items > 0 && c.planned && !c.meaning.is_quality() && c.ratio && !c.detectable &&
            c.verdict == Verdict::not_distinguishable)
            add({}, {}, c.protocol, c.task,
                fmt::format(
                    "{} rounds of {} are too few to show an effect; give the task more 'repeats'",
                    c.clusters, printable(c.metric, 60)));
    }

    void look_at_documents(const Contrast &c) {
        if (c.items == 0 || !c.meaning.is_quality() || c.kind == Contrast::Kind::rerun) return;
        const std::string metric = printable(c.metric, 60);
        if (!c.enough) {
            add({}, {}, c.protocol, c.task,
                fmt::format(
                    "only {} independent documents: too few for an interval or a verdict on "
                    "{}; use at least {}",
                    c.clusters, metric, asked_documents));
        } else if (!c.bounded && c.clusters < asked_documents) {
            add({}, {}, c.protocol, c.task,
                fmt::format("{} documents: intervals of {} hold only if the numbers of the "
                            "documents are not very skewed; use at least {} documents to be sure",
                            c.clusters, metric, asked_documents));
        }
        if (c.planned && c.enough && !c.is_size && !c.interval) look_at_missing_interval(c, metric);
        if (c.planned && c.meaning.ratio && !c.ratio)
            add(c.a, c.a_budget, c.protocol, c.task,
                fmt::format(
                    "{} is 0 in a document, so it is compared as a difference, without a margin",
                    metric));
    }

    void look_at_missing_interval(const Contrast &c, const std::string &metric) {
        const Statistics &s = out_.header.statistics;
        const uint64_t fewest = resamples_needed(s.confidence, c.family_size);
        if (s.resamples < fewest) {
            add({}, {}, c.protocol, c.task,
                fmt::format(
                    "statistics.resamples is too small for {} planned contrasts: set it to at "
                    "least {}",
                    c.family_size, std::max(fewest, std::min(20 * fewest, most_resamples))));
        } else {
            add(c.a, c.a_budget, c.protocol, c.task,
                fmt::format("{} differs between this arm and {} in too few of {} documents, so "
                            "there is no interval and no verdict",
                            metric, printable(c.b, 60), c.clusters));
        }
    }

    void look_at_noise() {
        if (out_.header.reference.empty()) return;
        if (out_.noise.empty()) {
            add({}, {}, {}, {}, "the reference was not run twice, so the noise floor is not known");
            return;
        }
        for (const Contrast &c : out_.noise) {
            if (c.meaning.is_quality() && c.identical < c.items)
                add(c.b, c.b_budget, c.protocol, c.task,
                    fmt::format("two runs of the reference differ in {} of {} items of {}; the "
                                "runs are not deterministic",
                                c.items - c.identical, c.items, printable(c.metric, 60)));
        }
    }

    Summary &out_;
    std::set<std::tuple<std::string, std::string, std::string, std::string, std::string>> said_;
};

} // namespace

void find_warnings(Summary &summary) { Finder(summary).find(); }

} // namespace keel::ab
