#pragma once

#include "eval/scoring/scoring.hpp"
#include "run/session_batch.hpp"

#include <functional>
#include <span>

namespace keel {

// A pipeline that scores several windows together. `first` is the session of the ScoringWalk. One
// of the windows uses the session `first`.
struct ScoringSide {
    SessionBatch *batch;
    Session *first;
};

// Scores the windows of a walk like ScoringWalk::run(), but scores several windows together. The
// number of windows at a time is Pipeline::batch(), which must be equal for the pipelines of all
// sides. Each step feeds one token to every window. A window has a separate session and cache on
// each side. So the logits of a window do not depend on the windows that are scored at the same
// time, except for rounding: a matmul with several rows can round differently. on_row gets the
// logits of one token of one window: one row for each side. The tokens of one window come in order.
// Calls for different windows come in any order. Rows are valid only during the call of on_row.
// Throws Error(usage) for a walk that does not feed tokens one by one. Throws Error(resource) or
// Error(runtime) if a sequence cannot continue. Throws Error(runtime) "cancelled" after
// HostServices::request_cancel.
void score_side_by_side(
    std::span<const ScoringSide> sides, const ScoringWalk &walk,
    const std::function<void(size_t window, int64_t target,
                             std::span<const std::span<const float>> rows)> &on_row,
    const std::function<void(size_t window, std::span<Session *const> sessions)> &on_window);

} // namespace keel
