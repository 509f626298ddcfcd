// Computes the numbers of a contrast: the effect, the inference and the interval.
#include "eval/ab/verdicts/verdict.hpp"

#include "eval/stats/clusters.hpp"
#include "eval/stats/mean_inference.hpp"
#include "eval/stats/paired_rates.hpp"
#include "eval/stats/trimmed_mean.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace keel::ab {
namespace {

bool is_yes_no(const std::vector<double> &values) {
    return std::all_of(values.begin(), values.end(), [](double v) { return v == 0 || v == 1; });
}

bool are_shares(const std::vector<double> &values) {
    return std::all_of(values.begin(), values.end(), [](double v) { return v >= 0 && v <= 1; });
}

PairedCounts count_pairs(const Pairs &pairs) {
    PairedCounts c;
    for (size_t i = 0; i < pairs.a.size(); ++i) {
        const bool a = pairs.a[i] != 0, b = pairs.b[i] != 0;
        ++(a ? (b ? c.both : c.first_only) : (b ? c.second_only : c.neither));
    }
    return c;
}

// Speeds use trimmed means, because there are few rounds and other programs sometimes disturb a
// round.
void measure_speed(Contrast &c, const Pairs &pairs, const ClusterSums &differences) {
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
    c.effect = effect_of(middle.mean, c.ratio);
    c.standard_error = middle.error;
    c.freedom = middle.freedom;
    c.method = "trimmed t";
    if (middle.error)
        c.inference =
            std::make_shared<StudentInference>(middle.mean, *middle.error, middle.freedom);
}

void find_inference(Contrast &c, const Pairs &pairs, const ClusterSums &sums, const Statistics &s) {
    c.enough = sums.size() >= fewest_documents(c);
    if (c.yes_no && sums.size() == pairs.a.size()) {
        c.inference = std::make_shared<PairedRateInference>(count_pairs(pairs));
        c.method = "score (McNemar, Tango)";
    } else if (c.bounded) {
        c.inference = share_difference(sums);
        c.method = "score, shares";
    } else {
        c.inference = mean_of_documents(sums, s.resamples, s.seed);
        c.method = mean_method(sums.size());
    }
}

bool are_positive(const std::vector<double> &values) {
    return std::all_of(values.begin(), values.end(), [](double v) { return v > 0; });
}

// Computes the geometric mean of A from the logarithms of the documents' numbers.
void measure_size(Contrast &c, const Pairs &pairs, const Statistics &s) {
    std::vector<double> logarithms = pairs.a;
    for (double &v : logarithms) v = std::log(v);
    const ClusterSums sums = ClusterSums::of(logarithms, pairs.clusters);
    c.clusters = sums.size();
    c.geometric = true;
    c.effect = c.mean_a = std::exp(sums.mean());
    c.standard_error = cluster_error(sums);
    c.freedom = static_cast<double>(c.clusters) - 1;
    c.method = mean_method(c.clusters);
    c.enough = c.clusters >= fewest_documents(MeanScale::logarithms);
    const auto inference = mean_of_documents(sums, s.resamples, s.seed);
    if (!inference || !c.enough) return;
    if (const auto found = inference->finite_interval(s.confidence))
        c.interval = c.interval_alone = Interval{std::exp(found->low), std::exp(found->high)};
}

} // namespace

size_t fewest_documents(const Contrast &contrast) {
    constexpr size_t for_shares = 10;
    if (contrast.meaning.kind == Metric::Kind::speed) return 0;
    if (contrast.bounded) return for_shares;
    return keel::fewest_documents(contrast.ratio ? MeanScale::logarithms : MeanScale::plain);
}

double effect_of(double on_scale, bool ratio) { return ratio ? std::expm1(on_scale) : on_scale; }

double step_of_unseen(const Contrast &c) {
    const auto differ = static_cast<double>(c.gains + c.losses);
    return (differ * c.step + 1) / (differ + 1);
}

std::optional<Interval> interval_of_effect(const Contrast &c, double confidence) {
    const auto found = c.inference->finite_interval(confidence);
    if (!found) return std::nullopt;
    Interval out{effect_of(found->low, c.ratio), effect_of(found->high, c.ratio)};
    if (c.bounded) out = {std::max(out.low, -1.0), std::min(out.high, 1.0)};
    // The ends of ratios and shares are rounded, but the effect must be inside the interval.
    return Interval{std::min(out.low, c.effect), std::max(out.high, c.effect)};
}

Pairs pair_points(const std::vector<Point> &a, const std::vector<Point> &b, const Names &names) {
    Pairs out;
    const auto missing = [&](const Point &point, uint64_t &count) {
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

void measure_contrast(Contrast &c, const Pairs &pairs, const Statistics &s) {
    c.items = pairs.a.size();
    c.only_a = pairs.only_a;
    c.only_b = pairs.only_b;
    c.missing = pairs.example;
    if (pairs.a.empty()) return;
    if (c.is_size && c.meaning.ratio && are_positive(pairs.a)) {
        measure_size(c, pairs, s);
        return;
    }
    c.ratio = c.geometric = c.meaning.ratio && are_positive(pairs.a) && are_positive(pairs.b);
    c.yes_no = c.meaning.kind == Metric::Kind::quality && is_yes_no(pairs.a) && is_yes_no(pairs.b);
    if (c.yes_no && !c.a_interpolated && !c.b_interpolated) c.pair_counts = count_pairs(pairs);
    c.bounded =
        c.yes_no || (c.meaning.kind == Metric::Kind::quality && c.meaning.higher_is_better &&
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
    if (c.meaning.kind == Metric::Kind::speed) {
        measure_speed(c, pairs, sums);
    } else {
        c.effect = effect_of(sums.mean(), c.ratio);
        c.standard_error = cluster_error(sums);
        c.freedom = static_cast<double>(c.clusters) - 1;
        double steps = 0;
        for (size_t i = 0; i < sums.sums.size(); ++i) {
            c.gains += sums.sums[i] > 0 ? 1 : 0;
            c.losses += sums.sums[i] < 0 ? 1 : 0;
            steps += std::abs(sums.sums[i] / sums.counts[i]);
        }
        if (c.gains + c.losses > 0) c.step = steps / static_cast<double>(c.gains + c.losses);
        find_inference(c, pairs, sums, s);
    }
    // Without enough documents, no interval is reliable.
    if (c.inference && c.enough)
        c.interval = c.interval_alone = interval_of_effect(c, s.confidence);
    // Without this reset, thousands of contrasts would need much memory.
    if (!c.planned) c.inference.reset();
}

std::vector<Contrast> contrast_cells(const Contrast &named, const Cell &a, const Cell &b,
                                     const Names &names, const Statistics &statistics) {
    const auto measured = [&](int64_t length, const std::vector<Point> &first,
                              const std::vector<Point> &second) {
        Contrast c = named;
        c.length = length;
        measure_contrast(c, pair_points(first, second, names), statistics);
        return c;
    };
    if (a.kind.kind != Metric::Kind::speed) return {measured(-1, a.points, b.points)};
    std::map<int64_t, std::pair<std::vector<Point>, std::vector<Point>>> by_length;
    for (const Point &point : a.points) by_length[point.length].first.push_back(point);
    for (const Point &point : b.points) by_length[point.length].second.push_back(point);
    std::vector<Contrast> out;
    for (const auto &[length, points] : by_length)
        out.push_back(measured(length, points.first, points.second));
    return out;
}

} // namespace keel::ab
