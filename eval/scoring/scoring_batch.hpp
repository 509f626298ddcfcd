#pragma once

#include "eval/scoring/scoring.hpp"
#include "run/session_batch.hpp"

#include <functional>
#include <span>

namespace keel {

// A pipeline that scores several windows together, and the session with which the ScoringWalk was
// made. This session is used for one of the windows.
struct ScoringSide {
    SessionBatch *batch;
    Session *first;
};

// Walks a text like ScoringWalk::run(), but with several windows at once: as many as the pipelines
// of all sides were made for, which must be the same number. Each step feeds one token to every
// window. A window has its own session and cache on each side. So its rows are the same as without
// the other windows, up to the rounding of products of several rows. The rows of a window (one for
// each side) come in order, but windows come in any order. Throws Error(usage) for a walk that does
// not feed its tokens one by one, Error(resource) or Error(runtime) if a sequence cannot continue,
// and Error(runtime) "cancelled" after HostServices::request_cancel. Rows are valid during the call
// that gets them.
void score_side_by_side(
    std::span<const ScoringSide> sides, const ScoringWalk &walk,
    const std::function<void(size_t window, int64_t target,
                             std::span<const std::span<const float>> rows)> &on_row,
    const std::function<void(size_t window, std::span<Session *const> sessions)> &on_window);

} // namespace keel
