// Settles families of planned contrasts: Holm's adjustment, simultaneous intervals, verdicts.
#include "eval/ab/verdicts/verdict.hpp"

#include "eval/stats/multiplicity.hpp"
#include "eval/stats/paired_rates.hpp"
#include "eval/stats/power.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace keel::ab {
namespace {

// Returns the inference for a sample of c.clusters documents in which k documents have the largest
// possible loss.
std::shared_ptr<const Inference> if_documents_lose(const Contrast &c, uint64_t k) {
    return std::make_shared<PairedRateInference>(PairedCounts{c.clusters - k, 0, k, 0});
}

// Computes the smallest detectable effect. p is significant up to `level`.
void find_detectable(Contrast &c, double level) {
    c.detectable.reset();
    if (c.clusters < 2) return;
    double least = 0;
    if (c.bounded) {
        // `needed` is the smallest number of documents that must differ, all with the same sign,
        // for any spread.
        const auto needed = documents_needed(c.clusters, level,
                                             [&](uint64_t k) { return if_documents_lose(c, k); });
        if (!needed) return;
        least = share_for(c.clusters, *needed) * step_of_unseen(c);
    }
    if (const double error = c.standard_error.value_or(0); error > 0)
        least = std::max(least, minimal_detectable_effect(error, c.freedom, 1 - level));
    // A detectable ratio of ten or more has no meaning. A ratio of ten or more appears if there are
    // few rounds, and if these rounds differ much.
    if (c.ratio && least > std::log(10.0)) return;
    c.detectable = std::max(c.noise, c.bounded ? std::min(1.0, least) : effect_of(least, c.ratio));
}

// Converts an effect to the scale of `inference`.
double on_scale(const Contrast &c, double effect) { return c.ratio ? std::log1p(effect) : effect; }

// The noise floor on both sides of 0, in units of the effect.
Interval noise_band(const Contrast &c) {
    return {c.ratio ? 1 / (1 + c.noise) - 1 : -c.noise, c.noise};
}

// Computes the low end of the interval of Holm's procedure. The interval starts as Bonferroni's
// interval. If a later step of Holm's procedure excludes a bound inside the interval, the interval
// ends at this bound.
void end_above(Contrast &c, double bound) {
    if (c.interval->low > bound) return;
    c.interval->low = bound;
    c.low_is_open = true;
}
void end_below(Contrast &c, double bound) {
    if (c.interval->high < bound) return;
    c.interval->high = bound;
    c.high_is_open = true;
}

Verdict verdict_of(const Contrast &c, double level) {
    if (c.items == 0) return Verdict::none;
    if (!c.label.empty() && !c.planned && !c.is_size) return Verdict::exploratory;
    if (c.identical == c.items) return Verdict::equal;
    if (c.is_size) return Verdict::size;
    if (!c.planned) return Verdict::exploratory;
    if (!c.enough) return Verdict::too_few;
    if (!c.p || c.p_adjusted > level) return Verdict::not_distinguishable;
    return c.gain() > 0 ? Verdict::better : Verdict::worse;
}

// Applies Holm's method to one claim about each member. `p_of` is the member with the claim's
// p-value. `claim` gets each contrast that has this p-value, with the adjusted p-value. A planned
// contrast without a p-value counts in the adjustment with p = 1.
template <typename Claim>
void decide(const std::vector<Contrast *> &members, size_t size,
            std::optional<double> Contrast::*p_of, const Claim &claim) {
    std::vector<double> p;
    for (const Contrast *c : members) p.push_back((c->*p_of).value_or(1));
    p.resize(size, 1); // planned contrasts that are not measured
    const std::vector<double> adjusted = holm(p);
    for (size_t i = 0; i < members.size(); ++i)
        if (members[i]->*p_of) claim(*members[i], adjusted[i]);
}

void find_p_values(Contrast &c, const Margins &margins) {
    const Interval noise = noise_band(c);
    const auto scaled = [&](double effect) { return on_scale(c, effect); };
    c.p = c.inference->p_outside(scaled(noise.low), scaled(noise.high));
    if (c.looks) c.p = c.looks->sequential_p(*c.p);
    if (c.meaning.ratio && !c.ratio) return;
    c.margin = margin_of(margins, c.metric);
    const Interval band = c.margin_band();
    const double above = c.inference->p_above(scaled(band.low)),
                 below = c.inference->p_below(scaled(band.high));
    c.p_non_inferior = c.meaning.higher_is_better ? above : below;
    c.p_non_superior = c.meaning.higher_is_better ? below : above;
    if (!c.looks) return;
    c.p_non_inferior = c.looks->sequential_p(*c.p_non_inferior);
    c.p_non_superior = c.looks->sequential_p(*c.p_non_superior);
}

void settle_difference(Contrast &c, double level) {
    const Interval noise = noise_band(c);
    if (c.p_adjusted > level) {
        // The interval already reaches the noise floor. Only rounding can leave a small gap.
        c.interval->low = std::min(c.interval->low, noise.high);
        c.interval->high = std::max(c.interval->high, noise.low);
    } else if (c.effect > 0) {
        end_above(c, noise.high);
    } else {
        end_below(c, noise.low);
    }
}

void settle_margin(Contrast &c, double level) {
    if (!c.margin) return;
    // A contrast that is shown to be a gain cannot be a loss. A contrast that is shown to be a loss
    // cannot be a gain.
    double &implied = c.gain() > 0 ? c.p_non_inferior_adjusted : c.p_non_superior_adjusted;
    implied = std::min(implied, c.p_adjusted);
    const Interval band = c.margin_band();
    c.non_inferior = c.p_non_inferior_adjusted <= level;
    const bool non_superior = c.p_non_superior_adjusted <= level;
    c.within_margin = c.non_inferior && non_superior;
    const bool up = c.meaning.higher_is_better;
    if (up ? c.non_inferior : non_superior) end_above(c, band.low);
    if (up ? non_superior : c.non_inferior) end_below(c, band.high);
    // The whole interval must be beyond the margin and beyond the noise floor.
    Contrast limit = c;
    limit.margin = std::max(*c.margin, c.noise);
    c.beyond_margin = up ? c.interval->high < limit.margin_band().low
                         : c.interval->low > limit.margin_band().high;
}

// `size`: at least the number of members.
void settle_family(const std::vector<Contrast *> &members, size_t size, const Statistics &s) {
    const double level = 1 - s.confidence, each = level / static_cast<double>(size);
    for (Contrast *c : members) {
        c->family_size = size;
        c->low_is_open = c->high_is_open = false;
        if (!c->enough) continue;
        const double own = c->looks ? c->looks->nominal(each) : each;
        c->interval = interval_of_effect(*c, 1 - own);
        if (!c->interval) continue; // there are too few resamples
        find_p_values(*c, s.margins);
        // The level of Holm's first step is valid for any results of the remaining contrasts.
        find_detectable(*c, own);
    }
    decide(members, size, &Contrast::p, [&](Contrast &c, double adjusted) {
        c.p_adjusted = adjusted;
        settle_difference(c, level);
    });
    decide(members, size, &Contrast::p_non_superior,
           [](Contrast &c, double adjusted) { c.p_non_superior_adjusted = adjusted; });
    decide(members, size, &Contrast::p_non_inferior,
           [](Contrast &c, double adjusted) { c.p_non_inferior_adjusted = adjusted; });
    for (Contrast *c : members)
        if (c->p) settle_margin(*c, level);
}

} // namespace

std::optional<double> Contrast::p_within() const {
    if (!p_non_inferior || !p_non_superior) return std::nullopt;
    return std::max(*p_non_inferior, *p_non_superior);
}

double Contrast::p_within_adjusted() const {
    return std::max(p_non_inferior_adjusted, p_non_superior_adjusted);
}

Interval Contrast::margin_band() const {
    if (!margin) return {};
    if (!ratio) return {-*margin, *margin};
    // A loss of 5% means A / B = 0.95 if higher is better, and 1.05 if lower is better.
    if (meaning.higher_is_better) return {-*margin, 1 / (1 - *margin) - 1};
    return {1 / (1 + *margin) - 1, *margin};
}

void settle_verdicts(std::vector<Contrast> &contrasts, const Statistics &s, uint64_t planned) {
    std::map<std::string, std::vector<Contrast *>> families;
    for (Contrast &c : contrasts)
        if (c.planned && c.inference && !c.is_size) families[c.family].push_back(&c);
    for (const auto &[name, members] : families)
        settle_family(members, std::max<size_t>(members.size(), planned), s);
    for (Contrast &c : contrasts) {
        c.verdict = verdict_of(c, 1 - s.confidence);
        // `detectable` is never below an effect that was measured but not shown.
        if (c.detectable && c.verdict == Verdict::not_distinguishable)
            c.detectable = std::max(*c.detectable, std::abs(c.effect));
        if (c.planned && c.is_equal_rerun) c.within_margin = c.non_inferior = true;
    }
}

} // namespace keel::ab
