#pragma once

#include "eval/ab/records/table.hpp"
#include "eval/stats/inference.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// What two arms' items say about each other.
namespace keel {

// Items of two cells, one beside the other.
struct AbPairs {
    std::vector<double> a, b;
    std::vector<uint32_t> clusters;
    uint64_t only_a = 0, only_b = 0;
    std::string example; // an item that one of them lacks
};

AbPairs pair_points(const std::vector<AbPoint> &a, const std::vector<AbPoint> &b,
                    const AbNames &names);

// The words are the same on the terminal, in summary.json and in the report.
enum class AbVerdict {
    better,
    worse,
    not_distinguishable,
    equal,
    none,
    exploratory,
    too_few,
    size
};
// "better", "worse", "not distinguishable", "equal in every item", "no item in common",
// "exploratory", "too few documents", "size"
const char *ab_verdict_name(AbVerdict verdict);

// A against B: one metric, item by item.
struct AbContrast {
    enum class Kind {
        reference,   // an arm against the reference
        pair,        // two arms at the same budget
        equal_bytes, // two arms where their caches are equally large
        rerun,       // the reference against itself
        runs,        // the same cell of two experiments
    };
    Kind kind = Kind::reference;
    // For equal_bytes a budget may be a range: "tokens:64 to tokens:128".
    std::string a, a_budget, b, b_budget, protocol, task, metric;
    AbMetric meaning;
    // One of the planned contrasts. All others are exploratory: they have an effect and an
    // interval, but no p and no verdict.
    bool planned = false;
    std::string family;                        // planned: the contrasts of one Holm adjustment
    double at_bytes = 0;                       // equal_bytes: bytes of both while scored
    double a_peak_bytes = 0, b_peak_bytes = 0; // equal_bytes: the peak of each
    int64_t length =
        -1; // of speeds: tokens before, each compared on its own; below 0: all lengths together
    bool implied =
        false; // B's numbers are what they are by definition: the reference against itself

    // A's distance from the reference (kld, top1): it is never 0, so it has a size and an interval,
    // no test. `effect` is the geometric mean of kld, or its mean if a document has 0; top1 - 1.
    bool is_size = false;

    uint64_t items = 0, clusters = 0, only_a = 0, only_b = 0;
    uint64_t gains = 0, losses = 0; // clusters in which A's mean is above B's, below it
    double step = 0;                // by how much, on average where they differ
    uint64_t identical = 0;         // pairs whose numbers are equal
    std::string missing;            // an item that one of them lacks
    bool yes_no = false;            // all numbers are 0 or 1
    bool bounded = false;           // all numbers are shares of a quality, from 0 to 1
    bool ratio = false;             // the effect is A / B - 1 by geometric means, else A - B
    bool geometric = false;         // mean_a (and mean_b) are geometric means
    double mean_a = 0, mean_b = 0, effect = 0; // in the metric's units; of speeds trimmed means
    // Of the effect. Planned, after settle_verdicts(): simultaneous, all intervals of the family
    // hold together at the confidence; an end is open if Holm's later steps exclude it. Otherwise:
    // of this contrast by itself.
    std::optional<Interval> interval;
    bool low_is_open = false, high_is_open = false;
    bool enough = true; // documents for a verdict: the method's intervals hold for so few
    std::optional<Interval> interval_alone; // of this contrast by itself
    std::string
        method; // of interval and p: "score (McNemar, Tango)", "score, shares", "t", "trimmed t"
    // Planned contrasts: the method's p-values and intervals, of the effect's logarithm for a
    // ratio.
    std::shared_ptr<const Inference> inference;
    std::optional<double>
        standard_error; // over clusters, of the effect (of its logarithm for a ratio)
    double freedom = 0; // its degrees

    double noise =
        0; // effects up to here are seen between two runs of the reference; set before the verdict
    // Two runs of one experiment that gave the same bits wherever anything could show a difference:
    // see compare_ab().
    bool is_equal_rerun = false;

    // From settle_verdicts(), of planned contrasts.
    std::optional<double> p; // that the true effect is 0, or within the noise floor
    double p_adjusted = 1;   // by Holm's method
    uint64_t family_size = 0;
    // The least effect that an experiment of this size finds four times out of five, among so many
    // contrasts; never below one that it did not find. Nothing: it can find none.
    std::optional<double> detectable;
    AbVerdict verdict = AbVerdict::not_distinguishable;
    // Of planned contrasts: the metric's margin, in units of the effect. Nothing if the margin is a
    // ratio and the effect is none.
    std::optional<double> margin;
    // Of two one-sided tests: that the loss is as large as the margin, that the gain is. Doubled,
    // to be compared with the same level as p. Adjusted by Holm's method over each of the two
    // sides.
    std::optional<double> p_non_inferior, p_non_superior;
    double p_non_inferior_adjusted = 1, p_non_superior_adjusted = 1;
    // Of both tests: the larger p.
    std::optional<double> p_within() const;
    double p_within_adjusted() const;
    // The claims. The interval agrees with each. An equal rerun is within and non-inferior.
    bool within_margin = false; // no loss and no gain as large as the margin
    bool non_inferior = false;  // no loss as large as the margin
    bool beyond_margin = false; // a loss larger than the margin (and than the noise floor)

    // The effect as a gain: positive is better.
    double gain() const { return meaning.higher_is_better ? effect : -effect; }
    // The margin's two ends, around 0, in units of the effect; both 0 without a margin. Of a ratio
    // they are equally far in logarithms: 5% are [-0.05, +0.053] if higher is better.
    Interval margin_band() const;
};

// Fills in all numbers of `contrast` whose names and meaning are set. No pairs: counts alone.
void measure_contrast(AbContrast &contrast, const AbPairs &pairs, const AbStatistics &statistics);

// The contrasts of two cells whose names `named` holds: one, or one for each length where it is
// speed. Lengths differ more than arms do.
std::vector<AbContrast> contrast_cells(const AbContrast &named, const AbCell &a, const AbCell &b,
                                       const AbNames &names, const AbStatistics &statistics);

// A step between the scale of `inference` and the effect's: a difference of logarithms to a ratio.
double ab_effect_of(double on_scale, bool ratio);

// The interval of the effect at `confidence`; contrast.inference is set. Nothing if the bootstrap
// has too few resamples for so high a confidence.
std::optional<Interval> interval_of_effect(const AbContrast &contrast, double confidence);

// How far a document counts that was not seen to differ: as far as those that did, and one more
// that differs wholly.
double ab_step_of_unseen(const AbContrast &contrast);

// Of planned contrasts: Holm over each family, simultaneous intervals, what could be seen among so
// many contrasts, verdicts. A verdict never contradicts the interval beside it.
void settle_verdicts(std::vector<AbContrast> &contrasts, const AbStatistics &statistics);

// "snapkv at tokens:128 is worse than full on passkey hit (question_blind): -0.36 [-0.44, -0.28], p
// = 2e-09 (McNemar exact, Holm over 12), 200 items in 200 documents; an experiment of this size
// could have seen 0.08"
std::string verdict_line(const AbContrast &contrast);

// "hit 5 points, nll 0.02 nats": margins of the planned contrasts; "none".
std::string ab_margins_text(const std::vector<AbContrast> &contrasts);
// "5.9 KiB". For means, so `bytes` need not be an integer.
std::string ab_bytes_text(double bytes);
// "snapkv at tokens:128". Only the arm, "full", if the budget is empty or "full".
std::string ab_arm_text(const std::string &arm, const std::string &budget);
// " (question_blind)"; empty without a protocol.
std::string ab_protocol_text(const std::string &protocol);
// "0.984", "12.35", "123.4", "1.2e-06"
std::string ab_number_text(double value);
// "+0.0123", "-4.2%": with as many digits as say something.
std::string effect_text(double effect, bool ratio);
// A value of the contrast's effect; a size has no sign.
std::string effect_text(const AbContrast &contrast, double effect);
// "0.08", "3.1%": what an experiment of this size could have seen; "nothing".
std::string detectable_text(const AbContrast &contrast);
// "<0.0001", "0.034", "-" for none.
std::string p_text(const std::optional<double> &p);
// "[-0.44, -0.28]"; "(0, 0.3]" if the end itself is excluded; "-" for none.
std::string interval_text(const AbContrast &contrast);

} // namespace keel
