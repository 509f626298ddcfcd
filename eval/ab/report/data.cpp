#include "eval/ab/report/data.hpp"
#include "eval/ab/verdicts/labels.hpp"

#include "eval/ab/report/answer.hpp"
#include "eval/ab/report/data_writer.hpp"
#include "eval/ab/report/methods.hpp"

namespace keel::ab {
namespace {

class NumberWriter {
  public:
    NumberWriter(DataWriter &writer, const Summary &summary, int level)
        : w_(writer), summary_(summary), level_(level) {}

    void write() {
        write_cells();
        write_contrasts();
        w_.list("apart", true, [&] {
            for (const Apart &one : summary_.apart) w_.out.value(apart_text(one));
        });
        write_speeds();
    }

  private:
    void write_cells() {
        w_.table("cells",
                 {"arm",  "budget", "protocol", "task", "metric", "up",       "kind",        "n",
                  "docs", "mean",   "low",      "high", "bytes",  "full",     "policyBytes", "peak",
                  "kept", "seen",   "evicts",   "us",   "front",  "peakFront"},
                 5, [&] {
                     for (const CellSummary &one : summary_.cells) {
                         const Cell &c = *one.cell;
                         w_.row(static_cast<const CellKey &>(c), c.kind.higher_is_better,
                                static_cast<int>(c.kind.kind), one.items, one.clusters,
                                short_number(one.mean), end(one.interval, &Interval::low),
                                end(one.interval, &Interval::high), short_number(c.kv_bytes),
                                short_number(c.full_kv_bytes), short_number(c.policy_bytes),
                                c.peak_kv_bytes, short_number(c.kept_slots), short_number(c.seen),
                                short_number(c.evictions), short_number(c.eviction_us),
                                one.on_front, one.on_peak_front);
                     }
                 });
    }

    static Short end(const std::optional<Interval> &interval, double Interval::*end) {
        return interval ? short_number((*interval).*end) : Short{"null"};
    }

    static Short pairs(const Contrast &c, uint64_t PairedCounts::*count) {
        return c.pair_counts ? Short{std::to_string((*c.pair_counts).*count)} : Short{"null"};
    }

    void write_contrast(const Contrast &c) {
        const auto mean = [&](double value) {
            return c.items > 0 ? short_number(value) : Short{"null"};
        };
        w_.row(w_.names(c.a), w_.names(c.a_budget), w_.names(c.b), w_.names(c.b_budget),
               w_.names(c.protocol), w_.names(c.task), w_.names(c.metric), w_.names(c.family),
               w_.names(c.method), w_.names(c.label), static_cast<int>(c.kind),
               static_cast<int>(c.verdict), c.planned, c.low_is_open, c.high_is_open,
               c.within_margin, c.non_inferior, c.beyond_margin, short_number(c.margin_band().low),
               short_number(c.margin_band().high),
               c.p_within() ? short_number(c.p_within_adjusted()) : Short{"null"},
               c.p_non_inferior ? short_number(c.p_non_inferior_adjusted) : Short{"null"},
               mean(c.mean_a), mean(c.mean_b), mean(c.effect), end(c.interval, &Interval::low),
               end(c.interval, &Interval::high), short_number(c.p),
               c.p ? short_number(c.p_adjusted) : Short{"null"}, c.family_size,
               short_number(c.detectable), c.items, c.clusters, c.identical, c.only_a + c.only_b,
               c.ratio, c.meaning.higher_is_better, static_cast<int>(c.meaning.kind),
               short_number(c.at_bytes), short_number(c.a_peak_bytes), short_number(c.b_peak_bytes),
               short_number(c.noise), c.implied, c.length, c.a_interpolated, c.b_interpolated,
               pairs(c, &PairedCounts::both), pairs(c, &PairedCounts::first_only),
               pairs(c, &PairedCounts::second_only), pairs(c, &PairedCounts::neither));
    }

    void write_contrasts() {
        w_.table("contrasts",
                 {"a",
                  "aBudget",
                  "b",
                  "bBudget",
                  "protocol",
                  "task",
                  "metric",
                  "family",
                  "method",
                  "label",
                  "kind",
                  "verdict",
                  "planned",
                  "lowOpen",
                  "highOpen",
                  "within",
                  "nonInferior",
                  "beyond",
                  "marginLow",
                  "marginHigh",
                  "pWithin",
                  "pNonInferior",
                  "meanA",
                  "meanB",
                  "effect",
                  "low",
                  "high",
                  "p",
                  "pAdjusted",
                  "size",
                  "seen",
                  "n",
                  "docs",
                  "identical",
                  "missing",
                  "ratio",
                  "up",
                  "sort",
                  "bytes",
                  "peakA",
                  "peakB",
                  "noise",
                  "implied",
                  "length",
                  "aInterpolated",
                  "bInterpolated",
                  "both",
                  "onlyA",
                  "onlyB",
                  "neither"},
                 10, [&] {
                     bool cut = false;
                     for (const Contrast &c : summary_.contrasts) {
                         const bool is_left_out =
                             level_ >= 4 && c.kind == Contrast::Kind::pair && !c.planned;
                         cut = cut || is_left_out;
                         if (!is_left_out) write_contrast(c);
                     }
                     if (cut)
                         w_.left_out(
                             "exploratory contrasts between two arms that are not the reference");
                     for (const Contrast &c : summary_.equal_bytes) write_contrast(c);
                     for (const Contrast &c : summary_.noise) write_contrast(c);
                 });
    }

    void write_speeds() {
        w_.table("speeds",
                 {"arm", "budget", "protocol", "task", "metric", "length", "n", "median", "p25",
                  "p75", "p99"},
                 5, [&] {
                     for (const SpeedRow &s : summary_.speeds)
                         w_.row(s.key, s.length, s.items, short_number(s.median),
                                short_number(s.p25), short_number(s.p75), short_number(s.p99));
                 });
    }

    DataWriter &w_;
    const Summary &summary_;
    int level_;
};

} // namespace

std::string report_data(const Table &table, const Names &names, const Summary &summary, int level) {
    DataWriter w;
    w.notes = summary.notes;
    w.out.begin_object().key("header").raw(header_line(summary.header));
    w.out.member("plan", plan_line(summary.header));
    w.out.member("primary", summary.primary);
    w.out.member("margins", margins_text(summary.contrasts));
    w.out.member("records", summary.records);
    w.list("answer", true, [&] { w.put(answer_sentences(summary)); });
    const Methods methods = methods_of(table, summary);
    w.list("methods", true, [&] { w.put(methods.paragraphs); });
    w.list("references", true, [&] { w.put(methods.references); });
    NumberWriter(w, summary, level).write();
    write_pictures(w, table, level);
    write_item_numbers(w, table, names, level);
    w.list("warnings", true, [&] {
        for (const Warning &one : summary.warnings)
            w.row(one.arm, one.budget, one.protocol, one.task, one.text);
    });
    w.list("notes", true, [&] { w.put(w.notes); });
    // `names` is written last, because each of the parts before can add names.
    w.list("names", true, [&] { w.put(w.names.list()); });
    w.out.end_object();
    return w.out.take();
}

} // namespace keel::ab
