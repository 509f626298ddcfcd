#pragma once

#include "eval/scoring/scoring.hpp"
#include "run/session_batch.hpp"

#include <functional>
#include <span>

namespace keel {

// A pipeline whose windows are taken together, and the session of its batch that the walk was made
// with, which is used too.
struct ScoringSide {
    SessionBatch *batch;
    Session *first;
};

// Walks a text as ScoringWalk::run does with one session of each side, as many windows at once as
// all the sides' pipelines were made for (the same number): each step takes a token of every one
// in. A window has a session and a cache of its own on each side, so its rows are those that it
// gives alone, up to the rounding of products of several rows. Rows (one for each side) come in the
// order of their window, windows in any. Throws Error(usage) for a walk that does not take its
// tokens in one by one, Error(resource) or Error(runtime) where a sequence cannot go on, and
// Error(runtime) "cancelled" after HostServices::request_cancel. Rows are valid during their call.
void score_side_by_side(
    std::span<const ScoringSide> sides, const ScoringWalk &walk,
    const std::function<void(size_t window, int64_t target,
                             std::span<const std::span<const float>> rows)> &on_row,
    const std::function<void(size_t window, std::span<Session *const> sessions)> &on_window);

} // namespace keel
