#pragma once

#include "eval/ab/records/table.hpp"
#include "eval/stats/group_sequential.hpp"
#include "eval/stats/inference.hpp"
#include "eval/stats/paired_rates.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// The comparison of two arms, item by item.
namespace keel::ab {

// The items that two cells have in common, as pairs of numbers.
struct Pairs {
    std::vector<double> a, b;
    std::vector<uint32_t> clusters;
    uint64_t only_a = 0, only_b = 0;
    std::string example; // an item that only one of the cells has
};

Pairs pair_points(const std::vector<Point> &a, const std::vector<Point> &b, const Names &names);

// The terminal, summary.json and the report use these verdicts under the same names.
enum class Verdict { better, worse, not_distinguishable, equal, none, exploratory, too_few, size };
// "better", "worse", "not distinguishable", "equal in every item", "no item in common",
// "exploratory", "too few documents", "size"
const char *verdict_name(Verdict verdict);

// The comparison of arm A with arm B on one metric, item by item.
struct Contrast {
    enum class Kind {
        reference,   // an arm against the reference
        pair,        // two arms at the same budget
        equal_bytes, // two arms whose caches have the same size in bytes
        rerun,       // the reference against itself
        runs,        // the same cell in two experiments
    };
    Kind kind = Kind::reference;
    // For equal_bytes, a budget can be a range: "tokens:64 to tokens:128".
    std::string a, a_budget, b, b_budget, protocol, task, metric;
    Metric meaning;
    // True for planned contrasts. A contrast that is not planned is exploratory: an exploratory
    // contrast has an effect and an interval, but no p-value and no verdict.
    bool planned = false;
    // true: one of the planned contrasts, even if a label makes the contrast exploratory
    bool is_listed = false;
    // The reason why the contrast has no verdict although there are results; see labels.hpp. Empty:
    // there is no such reason.
    std::string label;
    // The looks at this contrast, if the plan has a rule for early looks. If there are looks,
    // p-values are sequential, and the interval is the repeated confidence interval of the present
    // look.
    std::shared_ptr<const SpendingLooks> looks;
    std::string family;  // planned contrasts with the same family share one Holm adjustment
    double at_bytes = 0; // equal_bytes: the bytes of each arm while items are scored
    // equal_bytes: the peak bytes of each arm.
    double a_peak_bytes = 0, b_peak_bytes = 0;
    // equal_bytes: true if no run held these bytes. The arm's numbers are then interpolated between
    // the numbers at two budgets.
    bool a_interpolated = false, b_interpolated = false;
    // For speeds: the number of tokens in the cache. Each length has a separate contrast. Below 0
    // for metrics that are not speeds.
    int64_t length = -1;
    // True if B is the reference, and if B's numbers were not measured. The metric is a distance
    // from the reference, and the distance of the reference from itself follows from the
    // definition.
    bool implied = false;

    // True if the metric is the distance of A from the reference (kld, top1). An arm that changes
    // anything always has a distance, so the contrast has a size and an interval, but no test.
    // `effect` is the geometric mean of kld (the plain mean if a document has 0), or top1 - 1.
    bool is_size = false;

    uint64_t items = 0, clusters = 0, only_a = 0, only_b = 0;
    // The numbers of clusters in which A's mean is above B's (gains) and below B's (losses).
    uint64_t gains = 0, losses = 0;
    // The mean distance between A's mean and B's mean, over the clusters with a gain or a loss.
    double step = 0;
    uint64_t identical = 0; // pairs whose numbers are equal
    std::string missing;    // an item that only one of the arms has
    bool yes_no = false;    // all numbers are 0 or 1
    // The numbers of pairs in which both arms, only A, only B, or neither arm has a 1. nullopt if a
    // number is not 0 or 1, or is interpolated.
    std::optional<PairedCounts> pair_counts;
    bool bounded = false;   // all numbers are shares from 0 to 1, of a quality metric
    bool ratio = false;     // true: the effect is A / B - 1 with geometric means; false: the effect
                            // is A - B
    bool geometric = false; // mean_a and mean_b are geometric means
    // The means of A and B and the effect, in the metric's units. For speeds, the means are trimmed
    // means.
    double mean_a = 0, mean_b = 0, effect = 0;
    // The interval of the effect. After settle_verdicts(), a planned contrast has a simultaneous
    // interval: all intervals of the family hold together at the confidence. An end of the interval
    // is open if a later step of Holm's procedure excludes this end. An exploratory contrast has
    // its individual interval.
    std::optional<Interval> interval;
    bool low_is_open = false, high_is_open = false;
    bool enough = true;                     // there are enough documents for reliable intervals
    std::optional<Interval> interval_alone; // the interval as if this contrast were the only one
    // The method of the interval and of p: "score (McNemar, Tango)", "score, shares", "t" or
    // "trimmed t".
    std::string method;
    // The object that computes p-values and intervals. Only planned contrasts have an inference.
    // For a ratio, the inference is about the logarithm of the effect.
    std::shared_ptr<const Inference> inference;
    // The standard error of the effect over clusters. For a ratio: the standard error of the
    // logarithm of the effect.
    std::optional<double> standard_error;
    double freedom = 0; // degrees of freedom of the standard error

    // The noise floor: two runs of the reference differ by up to this effect. The noise floor must
    // be set before settle_verdicts() is called.
    double noise = 0;
    // True if two runs of one experiment have equal bits in all metrics that would show a
    // difference. compare_results() sets it.
    bool is_equal_rerun = false;

    // settle_verdicts() sets the following members for planned contrasts.
    // The p-value of the null hypothesis "the true effect is 0 or within the noise floor".
    std::optional<double> p;
    double p_adjusted = 1; // p, adjusted by Holm's method
    uint64_t family_size = 0;
    // The smallest true effect that an experiment of this size, with this number of contrasts,
    // detects with probability 0.8. `detectable` is never below an effect that was measured but not
    // shown. nullopt if no effect can be detected.
    std::optional<double> detectable;
    Verdict verdict = Verdict::not_distinguishable;
    // For planned contrasts: the metric's margin, in units of the effect. nullopt if the margin is
    // a ratio and the effect is not a ratio.
    std::optional<double> margin;
    // The p-values of two one-sided tests. The null hypotheses of the two tests are "the loss is at
    // least the margin" and "the gain is at least the margin". The p-values are doubled, so that
    // the same level as for p applies to them. Holm's method adjusts each of the two p-values over
    // the family.
    std::optional<double> p_non_inferior, p_non_superior;
    double p_non_inferior_adjusted = 1, p_non_superior_adjusted = 1;
    // The larger of p_non_inferior and p_non_superior. This number is the p-value of the test that
    // the effect is within the margin.
    std::optional<double> p_within() const;
    double p_within_adjusted() const;
    // Claims about margins. The interval agrees with each claim. For an equal rerun, non_inferior
    // and within_margin are always true.
    bool within_margin = false; // shown: no loss and no gain is as large as the margin
    bool non_inferior = false;  // shown: no loss is as large as the margin
    // shown: the loss is larger than the margin and than the noise floor
    bool beyond_margin = false;

    // The effect as a gain: a positive gain is an improvement.
    double gain() const { return meaning.higher_is_better ? effect : -effect; }
    // The margin on both sides of 0, in units of the effect; [0, 0] if there is no margin. For a
    // ratio, both ends are equally far from 0 in logarithms: 5% gives [-0.05, +0.053] if higher is
    // better.
    Interval margin_band() const;
};

// Fills in all numbers of `contrast`. The names and the meaning of `contrast` must be set before
// the call. If there are no pairs, only the counts are set.
void measure_contrast(Contrast &contrast, const Pairs &pairs, const Statistics &statistics);

// The fewest documents with which this contrast gets an interval and a verdict. `ratio`, `bounded`
// and `meaning` must be set. Speeds have no lower limit, so the result is 0 for them.
size_t fewest_documents(const Contrast &contrast);

// Makes the contrasts of two cells. `named` has the names of the two cells. Speeds get one contrast
// for each length, because speeds differ more between lengths than between arms. Metrics that are
// not speeds get one contrast.
std::vector<Contrast> contrast_cells(const Contrast &named, const Cell &a, const Cell &b,
                                     const Names &names, const Statistics &statistics);

// Converts a value from the scale of `inference` to an effect. For a ratio, the scale is the
// difference of logarithms.
double effect_of(double on_scale, bool ratio);

// The interval of the effect at `confidence`. contrast.inference must be set. Returns nullopt if
// the bootstrap has too few resamples for this confidence.
std::optional<Interval> interval_of_effect(const Contrast &contrast, double confidence);

// The difference that is assumed for one more document: the mean difference of the documents that
// differ and of one added document with the largest possible difference.
double step_of_unseen(const Contrast &contrast);

// For planned contrasts: computes Holm's adjustment in each family, simultaneous intervals,
// detectable effects and verdicts. A verdict never contradicts its interval. `planned`: the number
// of tests in a frozen plan, or 0. Planned tests that are not among `contrasts` count in the
// adjustment too.
void settle_verdicts(std::vector<Contrast> &contrasts, const Statistics &statistics,
                     uint64_t planned = 0);

// The verdict as a sentence. For example: "snapkv at tokens:128 is worse than full on passkey hit
// (question_blind): -0.36 [-0.44, -0.28], p = 2e-09 (McNemar exact, Holm over 12), 200 items in 200
// documents; an experiment of this size could have seen 0.08"
std::string verdict_line(const Contrast &contrast);

// The margins of the planned contrasts, for example "hit 5 points, nll 0.02 nats". "none" if there
// are no margins.
std::string margins_text(const std::vector<Contrast> &contrasts);
// Returns bytes as text, for example "5.9 KiB". `bytes` can be a mean, so `bytes` is not always an
// integer.
std::string bytes_text(double bytes);
// Returns an arm and its budget as text, for example "snapkv at tokens:128". If the budget is empty
// or "full", returns only the arm, for example "full".
std::string arm_text(const std::string &arm, const std::string &budget);
// " (interpolated)", or nothing.
std::string interpolated_text(bool interpolated);
// Returns the protocol in brackets, for example " (question_blind)". Empty if there is no protocol.
std::string protocol_text(const std::string &protocol);
// Examples: "0.984", "12.35", "123.4", "1.2e-06".
std::string number_text(double value);
// Returns an effect as text with a suitable number of digits, for example "+0.0123" or "-4.2%".
std::string effect_text(double effect, bool ratio);
// `effect` in the form of this contrast's effect. A size has no sign.
std::string effect_text(const Contrast &contrast, double effect);
// The smallest effect that an experiment of this size can detect: "0.08", "3.1%" or "nothing".
std::string detectable_text(const Contrast &contrast);
// Returns a p-value as text, for example "<0.0001" or "0.034". Returns "-" if there is no p-value.
std::string p_text(const std::optional<double> &p);
// Returns the interval as text, for example "[-0.44, -0.28]". If the low end is excluded, for
// example "(0, 0.3]". Returns "-" if there is no interval.
std::string interval_text(const Contrast &contrast);

} // namespace keel::ab
