#pragma once

#include "eval/ab/verdicts/verdict.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

// Compares arms at equal sizes in bytes, because a token costs more bytes in an f16 cache than in a
// q4_0 cache, and policies hold data beside it. The size is the bytes of cache plus policy while
// items are scored.
namespace keel::ab {

// Two arms whose ranges of bytes do not overlap, so they are not compared.
struct Apart {
    std::string a, a_budget, b, b_budget, protocol, task; // budgets: as in Contrast
    Interval a_bytes, b_bytes;

    // Bytes between the two ranges, and these as a share of the smaller range's upper end.
    double gap_bytes() const;
    double gap_share() const;
};

struct EqualBytes {
    std::vector<Contrast> contrasts; // without families, noise, Holm and verdicts
    std::vector<Apart> apart;
};

// An arm at a size in bytes. Between two budgets, each item's number is interpolated between its
// numbers at these budgets, linearly in bytes (for ratios, their logarithms). The peak is
// interpolated too. Only items that both cells have count.
struct AtBytes {
    std::vector<Point> points;
    std::string budget; // "tokens:64", or "tokens:64 to tokens:128"
    double peak_bytes = 0;
};
// `cells`: one arm, protocol, task and metric, by rising bytes.
AtBytes arm_at_bytes(const std::vector<const Cell *> &cells, double bytes);

// "snapkv at tokens:400 holds 5.9 KiB and window at tokens:64 to tokens:256 holds 1000 B to 3.9 KiB
// on passkey (question_blind): 2.0 KiB (50%) apart"
std::string apart_text(const Apart &apart);

// All quality metrics, for pairs of arms for which `wanted` returns true, at every measured size
// that both arms reach.
EqualBytes compare_at_equal_bytes(
    const Table &table, const Names &names, const Statistics &statistics,
    const std::function<bool(const std::string &a, const std::string &b)> &wanted);

// For points (bytes, value): which ones are on the Pareto front. For such a point, no other point
// has at least its quality at no more bytes. Equal points are all on it.
std::vector<bool> pareto_front(const std::vector<std::pair<double, double>> &points,
                               bool higher_is_better);

} // namespace keel::ab
