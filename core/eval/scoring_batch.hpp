#pragma once

#include "eval/scoring.hpp"
#include "pipeline/session_batch.hpp"

#include <functional>
#include <span>

namespace keel {

// Walks a text as ScoringWalk::run does with one session, as many windows at once as the batch's pipeline was made for: each step takes
// a token of every one in. A window has a session and a cache of its own, so its rows are those that it gives alone, up to the rounding
// of products of several rows. `first` is a session of the batch, one of those that are used. Rows come in the order of their window,
// windows in any. Throws Error(usage) for a walk that does not take its tokens in one by one.
void score_side_by_side(
    SessionBatch &batch, Session &first, const ScoringWalk &walk,
    const std::function<void(size_t window, int64_t target, std::span<const float> row)> &on_row,
    const std::function<void(size_t window, Session &session)> &on_window);

} // namespace keel
