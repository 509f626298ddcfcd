// Families of planned contrasts: adjustment, simultaneous intervals, verdicts.
#include "eval/ab/verdicts/verdict.hpp"

#include "eval/stats/clusters.hpp"
#include "eval/stats/mean_inference.hpp"
#include "eval/stats/multiplicity.hpp"
#include "eval/stats/paired_rates.hpp"
#include "eval/stats/power.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace keel {
namespace {

// A sample of as many documents as `c` has, of which k lose as much as a document can.
std::shared_ptr<const Inference> if_documents_lose(const AbContrast &c, uint64_t k) {
    if (c.yes_no && c.clusters == c.items)
        return std::make_shared<PairedRateInference>(PairedCounts{c.clusters - k, 0, k, 0});
    ClusterSums sums;
    sums.items = c.clusters;
    sums.counts.assign(c.clusters, 1);
    sums.sums.assign(c.clusters, 0);
    std::fill_n(sums.sums.begin(), k, -1.0);
    return share_difference(sums, 1);
}

// `level`: what p is compared with.
void find_detectable(AbContrast &c, double level) {
    c.detectable.reset();
    if (c.clusters < 2) return;
    double least = 0;
    if (c.bounded) {
        // So many documents have to differ, all to one side, whatever the spread was.
        const auto needed = documents_needed(c.clusters, level,
                                             [&](uint64_t k) { return if_documents_lose(c, k); });
        if (!needed) return;
        least = share_for(c.clusters, *needed) * ab_step_of_unseen(c);
    }
    if (const double error = c.standard_error.value_or(0); error > 0)
        least = std::max(least, minimal_detectable_effect(error, c.freedom, 1 - level));
    // A ratio of ten or more is no size that anything compared here differs by: two rounds that
    // differ say nothing.
    if (c.ratio && least > std::log(10.0)) return;
    c.detectable =
        std::max(c.noise, c.bounded ? std::min(1.0, least) : ab_effect_of(least, c.ratio));
}

// The interval that belongs to Holm's procedure: Bonferroni's, and where a later step of Holm's
// excludes a bound that Bonferroni's interval still reaches, the interval ends at this bound.
void end_above(AbContrast &c, double bound) {
    if (c.interval->low > bound) return;
    c.interval->low = bound;
    c.low_is_open = true;
}
void end_below(AbContrast &c, double bound) {
    if (c.interval->high < bound) return;
    c.interval->high = bound;
    c.high_is_open = true;
}

AbVerdict verdict_of(const AbContrast &c, double level) {
    if (c.items == 0) return AbVerdict::none;
    if (c.identical == c.items) return AbVerdict::equal;
    if (!c.planned) return AbVerdict::exploratory;
    if (!c.enough) return AbVerdict::too_few;
    if (!c.p || c.p_adjusted > level) return AbVerdict::not_distinguishable;
    return c.gain() > 0 ? AbVerdict::better : AbVerdict::worse;
}

void settle_family(const std::vector<AbContrast *> &members, double level) {
    std::vector<double> p;
    for (AbContrast *c : members) {
        const double band = c->ratio ? std::log1p(c->noise) : c->noise;
        if (c->enough) c->p = c->inference->p_outside(-band, band);
        p.push_back(c->p.value_or(1)); // planned: it counts, whatever came of it
    }
    const std::vector<double> adjusted = holm(p);
    const double each = level / static_cast<double>(members.size());
    for (size_t i = 0; i < members.size(); ++i) {
        AbContrast &c = *members[i];
        c.family_size = members.size();
        c.p_adjusted = adjusted[i];
        c.interval = interval_of_effect(c, 1 - each);
        c.low_is_open = c.high_is_open = false;
        const double below = c.ratio ? ab_effect_of(-std::log1p(c.noise), true) : -c.noise;
        if (c.p_adjusted > level) {
            // Both ends reach the band, but for rounding.
            c.interval =
                Interval{std::min(c.interval->low, c.noise), std::max(c.interval->high, below)};
        } else if (c.effect > 0) {
            end_above(c, c.noise);
        } else {
            end_below(c, below);
        }
        // Holm's first step is the level that all can count on.
        if (c.enough) find_detectable(c, each);
    }
}

} // namespace

std::optional<double> AbContrast::worst_gain() const {
    if (!interval) return std::nullopt;
    return meaning.higher_is_better ? interval->low : -interval->high;
}

std::optional<double> AbContrast::best_gain() const {
    if (!interval) return std::nullopt;
    return meaning.higher_is_better ? interval->high : -interval->low;
}

void settle_verdicts(std::vector<AbContrast> &contrasts, const AbStatistics &s) {
    const double level = 1 - s.confidence;
    std::map<std::string, std::vector<AbContrast *>> families;
    for (AbContrast &c : contrasts)
        if (c.planned && c.inference) families[c.family].push_back(&c);
    for (const auto &family : families) settle_family(family.second, level);
    for (AbContrast &c : contrasts) {
        c.verdict = verdict_of(c, level);
        // What was there and was not found is no less than what can be found.
        if (c.detectable && c.verdict == AbVerdict::not_distinguishable)
            c.detectable = std::max(*c.detectable, std::abs(c.effect));
        if (!c.planned || c.items == 0) continue;
        const auto worst = c.worst_gain(), best = c.best_gain();
        c.within_margin = (c.enough && worst && *worst > -s.margin) || c.is_equal_rerun;
        c.beyond_margin = c.enough && best && *best < -std::max(s.margin, c.noise);
    }
}

} // namespace keel
