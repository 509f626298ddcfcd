#include "eval/scoring/scoring_batch.hpp"

#include "base/error.hpp"

#include <memory>
#include <vector>

namespace keel {
namespace {

// A place for one window that is being scored. When the window ends, the seat gets the next window.
struct Seat {
    std::vector<Session *> sessions; // one session for each side
    size_t window = 0;
    ScoringWalk::Feed feed;
    size_t taken = 0; // number of tokens of feed.ids that were fed
};

class SideBySide {
  public:
    using OnRow = std::function<void(size_t, int64_t, std::span<const std::span<const float>>)>;
    using OnWindow = std::function<void(size_t, std::span<Session *const>)>;

    SideBySide(std::span<const ScoringSide> sides, const ScoringWalk &walk, const OnRow &on_row,
               const OnWindow &on_window)
        : sides_(sides), walk_(walk), on_row_(on_row), on_window_(on_window) {}

    void run() {
        const uint32_t most = sides_.front().first->pipeline().batch();
        while (seats_.size() < most) {
            Seat seat;
            for (const ScoringSide &side : sides_)
                seat.sessions.push_back(seats_.empty() ? side.first : another(*side.batch));
            if (!begin(seat)) break;
            seats_.push_back(std::move(seat));
        }
        while (!seats_.empty()) step();
    }

  private:
    Session *another(SessionBatch &batch) {
        return owned_.emplace_back(batch.make_session()).get();
    }

    // Gives a seat its next window. Windows that need only their prompt are finished here. Returns
    // false if no window is left.
    bool begin(Seat &seat) {
        while (next_ < walk_.windows().size()) {
            seat.window = next_++;
            seat.feed = walk_.feed_of(walk_.windows()[seat.window]);
            seat.taken = seat.feed.prompt;
            for (Session *session : seat.sessions) {
                session->reset();
                // prefill() returns false if the run was cancelled.
                if (!session->prefill(std::span(seat.feed.ids).first(seat.feed.prompt), true,
                                      seat.feed.scores_prompt ? 1 : 0))
                    throw_error(ErrorKind::runtime, "cancelled");
            }
            if (seat.feed.scores_prompt) give_row(seat, seat.feed.first);
            advance(seat.feed.prompt);
            if (seat.taken < seat.feed.ids.size()) return true;
            on_window_(seat.window, seat.sessions);
        }
        return false;
    }

    void step() {
        ids_.clear();
        for (const Seat &seat : seats_) ids_.push_back(seat.feed.ids[seat.taken]);
        for (size_t side = 0; side < sides_.size(); ++side) {
            sessions_.clear();
            for (const Seat &seat : seats_) sessions_.push_back(seat.sessions[side]);
            for (const SessionBatch::Outcome &outcome :
                 sides_[side].batch->decode(sessions_, ids_, SessionBatch::Read::logits)) {
                if (outcome.kind != SessionBatch::Outcome::Kind::done) throw outcome.error();
            }
        }
        advance(seats_.size());
        for (size_t i = seats_.size(); i-- > 0;) { // the loop begins at the end, because it removes
                                                   // seats
            Seat &seat = seats_[i];
            give_row(seat, seat.feed.first + static_cast<int64_t>(seat.taken));
            if (++seat.taken < seat.feed.ids.size()) continue;
            on_window_(seat.window, seat.sessions);
            if (!begin(seat)) seats_.erase(seats_.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }

    void give_row(const Seat &seat, int64_t target) {
        rows_.clear();
        for (Session *session : seat.sessions) rows_.push_back(session->logits());
        on_row_(seat.window, target, rows_);
    }

    void advance(size_t tokens) {
        done_ += tokens;
        for (const ScoringSide &side : sides_) {
            if (side.first->pipeline().host().cancelled())
                throw_error(ErrorKind::runtime, "cancelled");
        }
        const ScoringOptions &options = walk_.options();
        if (options.progress)
            options.progress("scoring", done_, static_cast<uint64_t>(walk_.fed_tokens()));
    }

    std::span<const ScoringSide> sides_;
    const ScoringWalk &walk_;
    const OnRow &on_row_;
    const OnWindow &on_window_;
    std::vector<std::unique_ptr<Session>> owned_;
    std::vector<Seat> seats_;
    std::vector<Session *> sessions_;
    std::vector<int32_t> ids_;
    std::vector<std::span<const float>> rows_;
    size_t next_ = 0;
    uint64_t done_ = 0;
};

} // namespace

void score_side_by_side(
    std::span<const ScoringSide> sides, const ScoringWalk &walk,
    const std::function<void(size_t window, int64_t target,
                             std::span<const std::span<const float>> rows)> &on_row,
    const std::function<void(size_t window, std::span<Session *const> sessions)> &on_window) {
    const uint32_t most = sides.front().first->pipeline().batch();
    for (const ScoringSide &side : sides) {
        if (side.first->pipeline().batch() != most)
            throw_error(ErrorKind::usage,
                        "the pipelines have different batches: {} and {} sequences; use the same "
                        "number for both",
                        most, side.first->pipeline().batch());
    }
    if (walk.options().step != 1)
        throw_error(ErrorKind::usage,
                    "--batch {}: windows can be scored together only if tokens are read one by one "
                    "(--step 1); here many tokens are read in each step, which already reads the "
                    "weights once for all of them; remove --batch",
                    most);
    SideBySide(sides, walk, on_row, on_window).run();
}

} // namespace keel
