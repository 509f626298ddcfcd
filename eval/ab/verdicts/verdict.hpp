#pragma once

#include "eval/ab/records/table.hpp"
#include "eval/stats/inference.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// The comparison of two arms, item by item.
namespace keel::ab {

// The pairs of items of two cells.
struct Pairs {
    std::vector<double> a, b;
    std::vector<uint32_t> clusters;
    uint64_t only_a = 0, only_b = 0;
    std::string example; // an item that only one of them has
};

Pairs pair_points(const std::vector<Point> &a, const std::vector<Point> &b, const Names &names);

// The terminal, summary.json and the report use the same words.
enum class Verdict { better, worse, not_distinguishable, equal, none, exploratory, too_few, size };
// "better", "worse", "not distinguishable", "equal in every item", "no item in common",
// "exploratory", "too few documents", "size"
const char *verdict_name(Verdict verdict);

// A against B: one metric, item by item.
struct Contrast {
    enum class Kind {
        reference,   // an arm against the reference
        pair,        // two arms at the same budget
        equal_bytes, // two arms whose caches have the same size in bytes
        rerun,       // the reference against itself
        runs,        // the same cell in two experiments
    };
    Kind kind = Kind::reference;
    // For equal_bytes a budget may be a range: "tokens:64 to tokens:128".
    std::string a, a_budget, b, b_budget, protocol, task, metric;
    Metric meaning;
    // One of the planned contrasts. All others are exploratory: they have an effect and an
    // interval, but no p and no verdict.
    bool planned = false;
    std::string family;  // planned: contrasts with the same family share one Holm adjustment
    double at_bytes = 0; // equal_bytes: bytes of both while items are scored
    double a_peak_bytes = 0, b_peak_bytes = 0; // equal_bytes: the peak of each
    // Speeds: tokens in the cache. Each length is compared on its own. Below 0: all lengths
    // together.
    int64_t length = -1;
    // B is the reference and its numbers follow from the definition: its distance from itself.
    bool implied = false;

    // The metric is A's distance from the reference (kld, top1). It is never 0 for an arm that
    // changes something, so it has a size and an interval, but no test. `effect` is the geometric
    // mean of kld (the mean if a document has 0), or top1 - 1.
    bool is_size = false;

    uint64_t items = 0, clusters = 0, only_a = 0, only_b = 0;
    uint64_t gains = 0, losses = 0; // clusters in which A's mean is above B's, and below B's
    double step = 0;                // mean distance of A's mean from B's in these clusters
    uint64_t identical = 0;         // pairs whose numbers are equal
    std::string missing;            // an item that only one of them has
    bool yes_no = false;            // all numbers are 0 or 1
    bool bounded = false;           // all numbers are shares of a quality, from 0 to 1
    bool ratio = false;             // the effect is A / B - 1 by geometric means, else A - B
    bool geometric = false;         // mean_a (and mean_b) are geometric means
    double mean_a = 0, mean_b = 0, effect = 0; // in the metric's units; for speeds trimmed means
    // The interval of the effect. Planned, after settle_verdicts(): simultaneous, so all intervals
    // of the family hold together at the confidence. An end is open if Holm's later steps exclude
    // it. Otherwise: the interval of this contrast by itself.
    std::optional<Interval> interval;
    bool low_is_open = false, high_is_open = false;
    bool enough = true; // there are enough documents for the method's intervals to hold
    std::optional<Interval> interval_alone; // as if this contrast were the only one
    // The method of the interval and p: "score (McNemar, Tango)", "score, shares", "t", "trimmed
    // t".
    std::string method;
    // Planned contrasts: p-values and intervals by the method. For a ratio they are of the effect's
    // logarithm.
    std::shared_ptr<const Inference> inference;
    // The effect's standard error over clusters. For a ratio: of the effect's logarithm.
    std::optional<double> standard_error;
    double freedom = 0; // degrees of freedom of the standard error

    // The noise floor: two runs of the reference differ by up to this effect. Set before the
    // verdict.
    double noise = 0;
    // Two runs of one experiment with the same bits in all metrics that would show a difference;
    // see compare_results().
    bool is_equal_rerun = false;

    // settle_verdicts() sets the members from here on for planned contrasts.
    std::optional<double> p; // of the claim that the true effect is 0 or within the noise floor
    double p_adjusted = 1;   // by Holm's method
    uint64_t family_size = 0;
    // The least true effect that an experiment of this size, with this many contrasts, finds four
    // times out of five. It is never below an effect that was measured but not shown. Nothing: it
    // can find none.
    std::optional<double> detectable;
    Verdict verdict = Verdict::not_distinguishable;
    // Planned contrasts: the metric's margin, in units of the effect. Nothing if the margin is a
    // ratio and the effect is not.
    std::optional<double> margin;
    // The p-values of two one-sided tests. Their null hypotheses: the loss is at least the margin;
    // the gain is at least the margin. The p-values are doubled, so that they are compared with the
    // same level as p. Holm's method adjusts each of the two over the family.
    std::optional<double> p_non_inferior, p_non_superior;
    double p_non_inferior_adjusted = 1, p_non_superior_adjusted = 1;
    // The larger of the two p-values: the test that the effect is within the margin.
    std::optional<double> p_within() const;
    double p_within_adjusted() const;
    // The claims about margins. The interval agrees with each. An equal rerun is within the margin
    // and non-inferior.
    bool within_margin = false; // no loss and no gain as large as the margin
    bool non_inferior = false;  // no loss as large as the margin
    bool beyond_margin = false; // a loss larger than the margin (and than the noise floor)

    // The effect as a gain: positive is better.
    double gain() const { return meaning.higher_is_better ? effect : -effect; }
    // The margin on both sides of 0, in units of the effect; [0, 0] without a margin. For a ratio
    // both ends are equally far in logarithms: 5% gives [-0.05, +0.053] if higher is better.
    Interval margin_band() const;
};

// Fills in all numbers of `contrast`. Its names and meaning must be set. Without pairs it sets only
// counts.
void measure_contrast(Contrast &contrast, const Pairs &pairs, const Statistics &statistics);

// The contrasts of two cells. `named` holds their names. For speeds there is one contrast for each
// length, because lengths differ more than arms do. For other metrics there is one.
std::vector<Contrast> contrast_cells(const Contrast &named, const Cell &a, const Cell &b,
                                     const Names &names, const Statistics &statistics);

// Converts a value from the scale of `inference` to an effect: for a ratio, a difference of
// logarithms to a ratio.
double effect_of(double on_scale, bool ratio);

// The interval of the effect at `confidence`. contrast.inference must be set. Nothing if the
// bootstrap has too few resamples for this confidence.
std::optional<Interval> interval_of_effect(const Contrast &contrast, double confidence);

// The size of the difference that is assumed for a document in which no difference was seen: the
// mean over the documents that differ and one more that differs completely.
double step_of_unseen(const Contrast &contrast);

// For planned contrasts: Holm's adjustment in each family, simultaneous intervals, detectable
// effects and verdicts. A verdict never contradicts its interval.
void settle_verdicts(std::vector<Contrast> &contrasts, const Statistics &statistics);

// The verdict as a sentence: "snapkv at tokens:128 is worse than full on passkey hit
// (question_blind): -0.36 [-0.44, -0.28], p = 2e-09 (McNemar exact, Holm over 12), 200 items in 200
// documents; an experiment of this size could have seen 0.08"
std::string verdict_line(const Contrast &contrast);

// The margins of the planned contrasts: "hit 5 points, nll 0.02 nats"; "none" without any.
std::string margins_text(const std::vector<Contrast> &contrasts);
// "5.9 KiB". `bytes` may be a mean, so it is no integer.
std::string bytes_text(double bytes);
// "snapkv at tokens:128". If the budget is empty or "full", only the arm: "full".
std::string arm_text(const std::string &arm, const std::string &budget);
// " (question_blind)"; empty without a protocol.
std::string protocol_text(const std::string &protocol);
// Examples: "0.984", "12.35", "123.4", "1.2e-06".
std::string number_text(double value);
// "+0.0123" or "-4.2%", with a useful number of digits.
std::string effect_text(double effect, bool ratio);
// `effect` as a value of the contrast's effect. A size has no sign.
std::string effect_text(const Contrast &contrast, double effect);
// The effect that an experiment of this size could have seen: "0.08", "3.1%" or "nothing".
std::string detectable_text(const Contrast &contrast);
// "<0.0001", "0.034", or "-" without a p.
std::string p_text(const std::optional<double> &p);
// "[-0.44, -0.28]", "(0, 0.3]" if the low end is excluded, or "-" without an interval.
std::string interval_text(const Contrast &contrast);

} // namespace keel::ab
