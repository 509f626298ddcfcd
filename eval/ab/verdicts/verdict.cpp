#include "eval/ab/verdicts/verdict.hpp"

#include "base/display.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

namespace keel {
namespace {

// Below: intervals by Student's t, since a bootstrap of so few is too narrow. Above: the two agree,
// and t costs nothing.
constexpr size_t fewest_resampled = 10, most_resampled = 1000;
constexpr uint64_t most_exact_flips = 17; // as sign_flip_test has it

bool is_yes_no(const std::vector<double> &values) {
    return std::all_of(values.begin(), values.end(), [](double v) { return v == 0 || v == 1; });
}

bool are_shares(const std::vector<double> &values) {
    return std::all_of(values.begin(), values.end(), [](double v) { return v >= 0 && v <= 1; });
}

double to_effect(double difference, bool ratio) {
    return ratio ? std::expm1(difference) : difference;
}

Interval to_effect(const Interval &i, bool ratio) {
    return {to_effect(i.low, ratio), to_effect(i.high, ratio)};
}

PairedCounts count_pairs(const AbPairs &pairs) {
    PairedCounts c;
    for (size_t i = 0; i < pairs.a.size(); ++i) {
        const bool a = pairs.a[i] != 0, b = pairs.b[i] != 0;
        ++(a ? (b ? c.both : c.first_only) : (b ? c.second_only : c.neither));
    }
    return c;
}

// How far a document counts where it differs: as far as those that did, and one more that differs
// wholly, which may have been missed.
double step_of_unseen(const AbContrast &c) {
    const auto differ = static_cast<double>(c.gains + c.losses);
    return (differ * c.step + 1) / (differ + 1);
}

// A bootstrap of documents of which few differ draws from those few, and knows nothing of the ones
// that it has not seen: an interval of shares reaches at least as far as Wilson's bounds on how
// many documents may gain or lose.
void widen(AbContrast &c, double confidence) {
    const auto k = static_cast<double>(c.clusters);
    const auto unseen = [&](uint64_t seen) {
        const auto n = static_cast<double>(seen);
        return (wilson_interval(n, k, confidence).high - n / k) * step_of_unseen(c);
    };
    const Interval least{c.effect - unseen(c.losses), c.effect + unseen(c.gains)};
    if (!c.interval) {
        c.interval = least;
        c.interval_method = "wilson";
    } else if (least.low < c.interval->low || least.high > c.interval->high) {
        c.interval =
            Interval{std::min(least.low, c.interval->low), std::max(least.high, c.interval->high)};
        c.interval_method += ", wilson";
    }
    c.interval = Interval{std::max(-1.0, c.interval->low), std::min(1.0, c.interval->high)};
}

// Speeds: rounds are few, and now and then one was disturbed by what else the machine did.
void measure_speed(AbContrast &c, const AbPairs &pairs, const ClusterSums &differences,
                   const AbStatistics &s) {
    const auto trimmed = [](const ClusterSums &sums) {
        std::vector<double> means;
        for (size_t i = 0; i < sums.sums.size(); ++i)
            means.push_back(sums.sums[i] / sums.counts[i]);
        return TrimmedMean::of(std::move(means));
    };
    const auto typical = [&](const std::vector<double> &values) {
        std::vector<double> scaled = values;
        if (c.ratio)
            for (double &v : scaled) v = std::log(v);
        const double mean = trimmed(ClusterSums::of(scaled, pairs.clusters)).mean;
        return c.ratio ? std::exp(mean) : mean;
    };
    c.mean_a = typical(pairs.a);
    c.mean_b = typical(pairs.b);
    const TrimmedMean middle = trimmed(differences);
    c.effect = to_effect(middle.mean, c.ratio);
    c.standard_error = middle.error;
    c.freedom = middle.freedom;
    c.p = middle.test();
    c.test = "trimmed t";
    if (const auto interval = middle.interval(s.confidence)) {
        c.interval = to_effect(*interval, c.ratio);
        c.interval_method = "trimmed t";
    }
}

void find_interval(AbContrast &c, const AbPairs &pairs, const ClusterSums &sums,
                   const AbStatistics &s) {
    const size_t k = sums.sums.size();
    if (k >= fewest_resampled && k <= most_resampled) {
        if (const auto bootstrap = cluster_bootstrap(sums, s.confidence, s.resamples, s.seed)) {
            c.percentile = to_effect(bootstrap->percentile, c.ratio);
            if (bootstrap->bca) c.bca = to_effect(*bootstrap->bca, c.ratio);
        }
    }
    const bool singles = k == pairs.a.size();
    if (c.yes_no && singles) {
        c.interval = newcombe_interval(count_pairs(pairs), s.confidence);
        c.interval_method = "newcombe";
    } else if (c.bounded && k > 0 && (!c.standard_error || *c.standard_error == 0)) {
        // No spread among so many documents does not mean that there is none: see widen().
    } else if (c.bca) {
        c.interval = c.bca;
        c.interval_method = "bca";
    } else if (c.percentile) {
        c.interval = c.percentile;
        c.interval_method = "percentile";
    } else if (const auto student = student_interval(sums, s.confidence)) {
        c.interval = to_effect(*student, c.ratio);
        c.interval_method = "student";
    }
    if (c.bounded && k > 0 && c.interval_method != "newcombe") widen(c, s.confidence);
}

void find_p(AbContrast &c, const AbPairs &pairs, const ClusterSums &sums, const AbStatistics &s) {
    const size_t k = sums.sums.size();
    if (c.yes_no && k == pairs.a.size()) {
        c.p = mcnemar_exact(count_pairs(pairs));
        c.test = "McNemar exact";
    } else if (k > most_resampled) {
        c.p = student_test(sums);
        c.test = "Student";
    } else {
        const SignFlip flip = sign_flip_test(sums.sums, s.resamples, s.seed);
        c.p = flip.p;
        c.test = flip.exact ? "sign flip exact" : "sign flip";
    }
}

// The least p that a test of so many documents can give, however large the effect.
double least_p(const AbContrast &c, const AbStatistics &s) {
    if (c.test == "Student" || c.test == "trimmed t") return 0;
    const double exact =
        std::ldexp(1.0, 1 - static_cast<int>(std::min<uint64_t>(c.clusters, 1000)));
    if (c.test == "McNemar exact" || c.clusters <= most_exact_flips) return exact;
    return 1 / (10 * static_cast<double>(s.resamples) + 1);
}

// The least share of n that is reached by `least` of them four times out of five.
double share_for(uint64_t n, uint64_t least) {
    const auto misses = [&](double share) { // the chance of fewer
        double term = std::pow(1 - share, static_cast<double>(n)), sum = 0;
        for (uint64_t i = 0; i < least; ++i) {
            sum += term;
            term *= static_cast<double>(n - i) / static_cast<double>(i + 1) * share / (1 - share);
        }
        return sum;
    };
    double low = 0, high = 1;
    for (int i = 0; i < 60; ++i) {
        const double middle = 0.5 * (low + high);
        (misses(middle) > 0.2 ? low : high) = middle;
    }
    return high;
}

// `level`: what p is held to.
void find_detectable(AbContrast &c, const AbStatistics &s, double level) {
    c.detectable.reset();
    if (c.clusters < 2 || least_p(c, s) > level) return;
    double least = 0;
    if (c.bounded && c.test != "Student") {
        // Tests of signs need so many documents that differ, all to one side, whatever the spread
        // was.
        const auto needed = static_cast<uint64_t>(std::ceil(1 - std::log2(level)));
        if (needed > c.clusters) return;
        least = share_for(c.clusters, needed) * (c.test == "McNemar exact" ? 1 : step_of_unseen(c));
    }
    if (const double error = c.standard_error.value_or(0); error > 0)
        least = std::max(least, minimal_detectable_effect(error, c.freedom, 1 - level));
    // A ratio of ten or more is no size that anything compared here differs by: two rounds that
    // differ say nothing.
    if (c.ratio && least > std::log(10.0)) return;
    c.detectable = std::max(c.noise, c.bounded ? std::min(1.0, least) : to_effect(least, c.ratio));
}

} // namespace

const char *ab_verdict_name(AbVerdict verdict) {
    switch (verdict) {
    case AbVerdict::better: return "better";
    case AbVerdict::worse: return "worse";
    case AbVerdict::equal: return "equal in every item";
    case AbVerdict::none: return "no item in common";
    case AbVerdict::not_distinguishable: break;
    }
    return "not distinguishable";
}

std::string ab_number_text(double value) {
    const double size = std::abs(value);
    if (size == 0) return "0";
    if (size >= 100) return fmt::format("{:.1f}", value);
    if (size >= 10) return fmt::format("{:.2f}", value);
    if (size >= 0.01) return fmt::format("{:.3f}", value);
    if (size >= 0.001) return fmt::format("{:.4f}", value);
    if (size >= 0.0001) return fmt::format("{:.5f}", value);
    return fmt::format("{:.1e}", value);
}

std::optional<double> AbContrast::worst_gain() const {
    if (!interval) return std::nullopt;
    return meaning.higher_is_better ? interval->low : -interval->high;
}

AbPairs pair_points(const std::vector<AbPoint> &a, const std::vector<AbPoint> &b,
                    const AbNames &names) {
    AbPairs out;
    const auto missing = [&](const AbPoint &point, uint64_t &count) {
        if (count++ == 0 && out.example.empty()) out.example = names.text(point.item);
    };
    for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
        if (j == b.size() || (i < a.size() && a[i].item < b[j].item)) {
            missing(a[i++], out.only_a);
        } else if (i == a.size() || b[j].item < a[i].item) {
            missing(b[j++], out.only_b);
        } else {
            out.a.push_back(a[i].value);
            out.b.push_back(b[j].value);
            out.clusters.push_back(a[i].cluster);
            ++i;
            ++j;
        }
    }
    return out;
}

void measure_contrast(AbContrast &c, const AbPairs &pairs, const AbStatistics &s) {
    c.items = pairs.a.size();
    c.only_a = pairs.only_a;
    c.only_b = pairs.only_b;
    c.missing = pairs.example;
    if (pairs.a.empty()) return;
    const auto positive = [](double v) { return v > 0; };
    c.ratio = c.meaning.ratio && std::all_of(pairs.a.begin(), pairs.a.end(), positive) &&
              std::all_of(pairs.b.begin(), pairs.b.end(), positive);
    c.yes_no =
        c.meaning.kind == AbMetric::Kind::quality && is_yes_no(pairs.a) && is_yes_no(pairs.b);
    c.bounded =
        c.yes_no || (c.meaning.kind == AbMetric::Kind::quality && c.meaning.higher_is_better &&
                     are_shares(pairs.a) && are_shares(pairs.b));
    const auto scaled = [&](double v) { return c.ratio ? std::log(v) : v; };
    std::vector<double> differences(pairs.a.size());
    const double share = 1 / static_cast<double>(pairs.a.size());
    for (size_t i = 0; i < pairs.a.size(); ++i) {
        const double a = scaled(pairs.a[i]), b = scaled(pairs.b[i]);
        differences[i] = a - b;
        c.mean_a += a * share;
        c.mean_b += b * share;
        c.identical += pairs.a[i] == pairs.b[i] ? 1 : 0;
    }
    if (c.ratio) {
        c.mean_a = std::exp(c.mean_a);
        c.mean_b = std::exp(c.mean_b);
    }
    const ClusterSums sums = ClusterSums::of(differences, pairs.clusters);
    c.clusters = sums.sums.size();
    if (c.meaning.kind == AbMetric::Kind::speed) {
        measure_speed(c, pairs, sums, s);
    } else {
        c.effect = to_effect(sums.mean(), c.ratio);
        c.standard_error = cluster_error(sums);
        c.freedom = static_cast<double>(c.clusters) - 1;
        double steps = 0;
        for (size_t i = 0; i < sums.sums.size(); ++i) {
            c.gains += sums.sums[i] > 0 ? 1 : 0;
            c.losses += sums.sums[i] < 0 ? 1 : 0;
            steps += std::abs(sums.sums[i] / sums.counts[i]);
        }
        if (c.gains + c.losses > 0) c.step = steps / static_cast<double>(c.gains + c.losses);
        find_interval(c, pairs, sums, s);
        find_p(c, pairs, sums, s);
    }
    find_detectable(c, s, 1 - s.confidence);
}

std::vector<AbContrast> contrast_cells(const AbContrast &named, const AbCell &a, const AbCell &b,
                                       const AbNames &names, const AbStatistics &statistics) {
    const auto measured = [&](int64_t length, const std::vector<AbPoint> &first,
                              const std::vector<AbPoint> &second) {
        AbContrast c = named;
        c.length = length;
        measure_contrast(c, pair_points(first, second, names), statistics);
        return c;
    };
    if (a.kind.kind != AbMetric::Kind::speed) return {measured(-1, a.points, b.points)};
    std::map<int64_t, std::pair<std::vector<AbPoint>, std::vector<AbPoint>>> by_length;
    for (const AbPoint &point : a.points) by_length[point.length].first.push_back(point);
    for (const AbPoint &point : b.points) by_length[point.length].second.push_back(point);
    std::vector<AbContrast> out;
    for (const auto &[length, points] : by_length)
        out.push_back(measured(length, points.first, points.second));
    return out;
}

void settle_verdicts(std::vector<AbContrast> &contrasts, const AbStatistics &s) {
    std::map<std::string, std::vector<size_t>> families;
    for (size_t i = 0; i < contrasts.size(); ++i)
        if (contrasts[i].p) families[contrasts[i].family].push_back(i);
    for (const auto &[name, members] : families) {
        std::vector<double> p;
        for (const size_t i : members) p.push_back(*contrasts[i].p);
        const std::vector<double> adjusted = holm(p);
        for (size_t i = 0; i < members.size(); ++i) {
            contrasts[members[i]].p_adjusted = adjusted[i];
            contrasts[members[i]].family_size = members.size();
        }
    }
    for (AbContrast &c : contrasts) {
        const bool clear = c.p && c.interval && c.p_adjusted <= 1 - s.confidence &&
                           (c.interval->low > 0 || c.interval->high < 0) &&
                           std::abs(c.effect) > c.noise;
        c.verdict = c.items == 0             ? AbVerdict::none
                    : c.identical == c.items ? AbVerdict::equal
                    : !clear                 ? AbVerdict::not_distinguishable
                    : c.gain() > 0           ? AbVerdict::better
                                             : AbVerdict::worse;
        // Holm's first step is the level that all can count on: p is held to no less than its share
        // of it.
        if (c.items > 0)
            find_detectable(c, s,
                            (1 - s.confidence) /
                                static_cast<double>(std::max<uint64_t>(c.family_size, 1)));
        // What was there and was not found is no less than what can be found.
        if (c.detectable && c.verdict == AbVerdict::not_distinguishable)
            c.detectable = std::max(*c.detectable, std::abs(c.effect));
        const auto worst = c.worst_gain();
        c.within_margin = c.items > 0 && ((worst && *worst > -s.margin) || c.is_equal_rerun);
        c.beyond_margin = c.verdict == AbVerdict::worse && c.gain() < -s.margin;
    }
}

} // namespace keel
