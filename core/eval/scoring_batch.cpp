#include "eval/scoring_batch.hpp"

#include "base/error.hpp"

#include <memory>
#include <vector>

namespace keel {
namespace {

// A window that is under way.
struct Seat {
    Session *session = nullptr;
    size_t window = 0;
    ScoringWalk::Feed feed;
    size_t taken = 0; // of feed.ids
};

} // namespace

void score_side_by_side(
    SessionBatch &batch, Session &first, const ScoringWalk &walk,
    const std::function<void(size_t window, int64_t target, std::span<const float> row)> &on_row,
    const std::function<void(size_t window, Session &session)> &on_window) {
    Pipeline &pipeline = first.pipeline();
    const ScoringOptions &options = walk.options();
    if (options.step != 1)
        throw_error(
            ErrorKind::usage,
            "ScoringOptions::batch: {} windows at once are for tokens that are taken in one by one, in "
            "steps of 1; many at a time, as here, read the weights once for all of them anyway",
            pipeline.batch());
    uint64_t done = 0;
    const auto advance = [&](size_t tokens) {
        done += tokens;
        if (pipeline.host().cancelled()) throw_error(ErrorKind::runtime, "cancelled");
        if (options.progress) options.progress("scoring", done, static_cast<uint64_t>(walk.fed_tokens()));
    };
    size_t next = 0;
    // Gives a seat its next window that needs a step; false: there is none.
    const auto begin = [&](Seat &seat) {
        while (next < walk.windows().size()) {
            seat.window = next++;
            seat.feed = walk.feed_of(walk.windows()[seat.window]);
            seat.taken = seat.feed.prompt;
            seat.session->reset();
            seat.session->prefill(std::span(seat.feed.ids).first(seat.feed.prompt), true,
                                  seat.feed.scores_prompt ? 1 : 0);
            if (seat.feed.scores_prompt) on_row(seat.window, seat.feed.first, seat.session->logits());
            advance(seat.feed.prompt);
            if (seat.taken < seat.feed.ids.size()) return true;
            on_window(seat.window, *seat.session);
        }
        return false;
    };

    std::vector<std::unique_ptr<Session>> owned;
    std::vector<Seat> seats;
    while (seats.size() < pipeline.batch()) {
        Seat seat;
        if (seats.empty()) {
            seat.session = &first;
        } else {
            owned.push_back(batch.make_session());
            seat.session = owned.back().get();
        }
        if (!begin(seat)) break;
        seats.push_back(std::move(seat));
    }
    std::vector<Session *> sessions;
    std::vector<int32_t> ids;
    while (!seats.empty()) {
        sessions.clear();
        ids.clear();
        for (const Seat &seat : seats) {
            sessions.push_back(seat.session);
            ids.push_back(seat.feed.ids[seat.taken]);
        }
        for (const SessionBatch::Outcome &outcome : batch.decode(sessions, ids, SessionBatch::Read::logits)) {
            if (outcome.kind == SessionBatch::Outcome::Kind::full)
                throw Error(ErrorKind::resource, outcome.detail);
            if (outcome.kind == SessionBatch::Outcome::Kind::failed)
                throw Error(ErrorKind::runtime, outcome.detail);
        }
        advance(seats.size());
        for (size_t i = seats.size(); i-- > 0;) { // from the end: those before keep their places
            Seat &seat = seats[i];
            on_row(seat.window, seat.feed.first + static_cast<int64_t>(seat.taken), seat.session->logits());
            if (++seat.taken < seat.feed.ids.size()) continue;
            on_window(seat.window, *seat.session);
            if (!begin(seat)) seats.erase(seats.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
}

} // namespace keel
