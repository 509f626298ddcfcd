#pragma once

#include "eval/ab/verdicts/verdict.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

// Compares arms whose caches have the same size in bytes. Equal budgets in tokens are not enough: a
// token needs more bytes in an f16 cache than in a q4_0 cache, and policies hold data of their own.
// The size of an arm is the bytes of its cache and of its policy's data while items are scored.
namespace keel::ab {

// Two arms that are not compared, because their ranges of bytes do not overlap.
struct Apart {
    // a_budget and b_budget have the same form as in Contrast.
    std::string a, a_budget, b, b_budget, protocol, task;
    Interval a_bytes, b_bytes;

    // The distance between the two ranges: in bytes, and as a share of the upper end of the range
    // with fewer bytes.
    double gap_bytes() const;
    double gap_share() const;
};

struct EqualBytes {
    // contrasts without a family, noise floor, Holm adjustment or verdict
    std::vector<Contrast> contrasts;
    std::vector<Apart> apart;
};

// An arm at a size in bytes. The size can be between the sizes at two budgets. In this case each
// item's number is interpolated linearly in bytes between the item's numbers at the two budgets.
// For ratios, the logarithms are interpolated. The peak is interpolated in the same way. Only items
// that both cells have are used.
struct AtBytes {
    std::vector<Point> points;
    std::string budget; // for example "tokens:64", or "tokens:64 to tokens:128"
    double peak_bytes = 0;
    bool interpolated = false; // true: no run held exactly these bytes
};
// `cells` are the cells of one arm, protocol, task and metric, in rising order of bytes.
AtBytes arm_at_bytes(const std::vector<const Cell *> &cells, double bytes);

// Describes two arms that are not compared. For example: "snapkv at tokens:400 holds 5.9 KiB and
// window at tokens:64 to tokens:256 holds 1000 B to 3.9 KiB on passkey (question_blind): 2.0 KiB
// (50%) apart"
std::string apart_text(const Apart &apart);

// Compares all pairs of arms for which `wanted` returns true, on all quality metrics, at every
// measured size that both arms reach.
EqualBytes compare_at_equal_bytes(
    const Table &table, const Names &names, const Statistics &statistics,
    const std::function<bool(const std::string &a, const std::string &b)> &wanted);

// Returns for each point (bytes, value) whether it is on the Pareto front. A point is on the front
// if no other point has at least the same quality with at most the same bytes. If several points
// are equal, either all of them are on the front, or none of them.
std::vector<bool> pareto_front(const std::vector<std::pair<double, double>> &points,
                               bool higher_is_better);

} // namespace keel::ab
