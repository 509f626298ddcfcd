#pragma once

#include "eval/ab/verdicts/verdict.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

// Compares arms at equal cache sizes in bytes, because a token costs more bytes in an f16 cache
// than in a q4_0 cache.
namespace keel {

// Two arms whose caches are never equally large: nothing can be said.
struct AbApart {
    std::string a, b, protocol, task;
    Interval a_bytes, b_bytes;
};

struct AbEqualBytes {
    std::vector<AbContrast> contrasts; // without families, noise, Holm and verdicts
    std::vector<AbApart> apart;
};

// An arm's items at a cache size between two of its budgets: each item's number is taken between
// its two, linearly in bytes (its logarithm for ratios). `cells`: one arm, protocol, task and
// metric, by rising bytes. Items that both cells have.
std::vector<AbPoint> points_at_bytes(const std::vector<const AbCell *> &cells, double bytes);

// All quality metrics, for pairs of arms for which `wanted` returns true, at every measured size
// that both arms reach.
AbEqualBytes compare_at_equal_bytes(
    const AbTable &table, const AbNames &names, const AbStatistics &statistics,
    const std::function<bool(const std::string &a, const std::string &b)> &wanted);

// For points (bytes, value): which ones are on the Pareto front. For such a point, no other point
// has at least its quality at no more bytes. Equal points are all on it.
std::vector<bool> pareto_front(const std::vector<std::pair<double, double>> &points,
                               bool higher_is_better);

} // namespace keel
