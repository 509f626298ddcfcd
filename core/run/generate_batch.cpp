#include "run/generate_batch.hpp"

#include <algorithm>
#include <map>

namespace keel {
namespace {

class TextsAtOnce {
  public:
    using Next = std::function<std::optional<TextRequest>()>;
    using Done = std::function<void(size_t, GenerateResult, const Error *)>;

    TextsAtOnce(SessionBatch &batch, Pipeline &pipeline, const Next &next, const Done &done)
        : batch_(batch), pipeline_(pipeline), next_(next), done_(done) {}

    void run() {
        for (;;) {
            fill();
            parts_.clear();
            seat_of_.clear();
            read_ = SessionBatch::Read::greedy;
            choose();
            add_chunks();
            if (!parts_.empty()) step();
            if (seats_.empty() && !more_) return;
        }
    }

  private:
    struct Seat {
        std::unique_ptr<Session> session;
        std::unique_ptr<Generation> text;
        size_t number;
        int32_t next = 0; // the token that the session takes in next
    };

    // Starts a new text in each free seat, as long as there are prompts.
    void fill() {
        while (more_ && seats_.size() < pipeline_.batch()) {
            const std::optional<TextRequest> prompt = next_();
            more_ = prompt.has_value();
            if (!more_) return;
            Seat seat{free_session(), nullptr, number_++};
            try {
                seat.text =
                    std::make_unique<Generation>(*seat.session, prompt->ids, prompt->options,
                                                 Generation::Prompt::read_by_caller);
            } catch (const Error &error) {
                if (seat.session->is_broken()) throw;
                done_(seat.number, {}, &error);
                free_.push_back(std::move(seat.session));
                continue;
            }
            seats_.push_back(std::move(seat));
        }
    }

    std::unique_ptr<Session> free_session() {
        if (free_.empty()) return batch_.make_session();
        std::unique_ptr<Session> session = std::move(free_.back());
        free_.pop_back();
        session->reset();
        return session;
    }

    // Chooses the next token of each text whose prompt is read. The seat of a text that has ended
    // becomes free.
    void choose() {
        for (size_t i = 0; i < seats_.size();)
            if (goes_on(i)) ++i;
        for (size_t i = 0; i < seats_.size(); ++i) {
            const Seat &seat = seats_[i];
            if (!seat.text->unread().empty()) continue;
            if (seat.text->needs_logits()) read_ = SessionBatch::Read::logits;
            add(i, {&seat.next, 1}, StepKind::decode);
        }
    }

    // Returns false if the text has ended and left its seat.
    bool goes_on(size_t i) {
        Generation &text = *seats_[i].text;
        const bool is_read = text.unread().empty();
        if (!is_read && !text.is_cancelled()) return true;
        try {
            if (!is_read) {
                text.give_up_prompt();
                text.stop(StopReason::cancelled);
            } else if (const std::optional<int32_t> id = text.next()) {
                seats_[i].next = *id;
                return true;
            }
        } catch (const Error &error) {
            leave(i, &error);
            return false;
        }
        leave(i, nullptr);
        return false;
    }

    // Adds chunks of the prompts that are not read, the oldest first. A chunk that does not fit
    // waits for a later step, because a cut chunk could change what a policy keeps.
    void add_chunks() {
        size_t room = pipeline_.graph().max_step_tokens() - parts_.size();
        for (size_t i = 0; i < seats_.size(); ++i) {
            const Generation &text = *seats_[i].text;
            const std::span<const int32_t> unread = text.unread();
            if (unread.empty()) continue;
            const auto n = static_cast<size_t>(seats_[i].session->next_chunk(std::ssize(unread)));
            if (n > room) continue;
            room -= n;
            const bool is_last = n == unread.size();
            if (is_last && text.needs_logits()) read_ = SessionBatch::Read::logits;
            add(i, unread.first(n), is_last ? StepKind::prefill_end : StepKind::prefill_chunk);
        }
    }

    void add(size_t seat, std::span<const int32_t> ids, StepKind kind) {
        parts_.push_back({seats_[seat].session.get(), ids, kind});
        seat_of_.push_back(seat);
    }

    void step() {
        const auto outcomes = batch_.step(parts_, read_);
        std::vector<size_t> gone;
        std::map<size_t, Error> own; // errors of the texts' own callbacks
        for (size_t p = 0; p < outcomes.size(); ++p) {
            if (outcomes[p].kind != SessionBatch::Outcome::Kind::done) {
                gone.push_back(p);
            } else if (parts_[p].kind != StepKind::decode) {
                try {
                    seats_[seat_of_[p]].text->count_read(parts_[p].ids.size());
                } catch (const Error &error) {
                    own.emplace(p, error);
                    gone.push_back(p);
                }
            }
        }
        // from the last seat, so that the indices of the others stay valid
        std::sort(gone.begin(), gone.end(),
                  [&](size_t a, size_t b) { return seat_of_[a] > seat_of_[b]; });
        for (const size_t p : gone) {
            const SessionBatch::Outcome &outcome = outcomes[p];
            const bool is_full = outcome.kind == SessionBatch::Outcome::Kind::full;
            if (const auto failed = own.find(p); failed != own.end()) {
                leave(seat_of_[p], &failed->second);
            } else if (is_full && parts_[p].kind == StepKind::decode) {
                seats_[seat_of_[p]].text->stop(StopReason::cache_full, outcome.detail);
                leave(seat_of_[p], nullptr);
            } else {
                const Error error = outcome.error();
                leave(seat_of_[p], &error);
            }
        }
    }

    void leave(size_t i, const Error *error) {
        Seat seat = std::move(seats_[i]);
        seats_.erase(seats_.begin() + static_cast<std::ptrdiff_t>(i));
        GenerateResult result;
        if (error == nullptr) result = seat.text->finish();
        seat.text.reset();
        if (error == nullptr)
            free_.push_back(std::move(seat.session)); // a session that failed is discarded
        done_(seat.number, std::move(result), error);
    }

    SessionBatch &batch_;
    Pipeline &pipeline_;
    const Next &next_;
    const Done &done_;
    std::vector<Seat> seats_;
    std::vector<std::unique_ptr<Session>> free_;
    std::vector<SessionBatch::Part> parts_; // of the current step
    std::vector<size_t> seat_of_;           // [parts_]
    SessionBatch::Read read_ = SessionBatch::Read::greedy;
    size_t number_ = 0;
    bool more_ = true;
};

} // namespace

void generate_batch(
    SessionBatch &batch, Pipeline &pipeline,
    const std::function<std::optional<TextRequest>()> &next,
    const std::function<void(size_t number, GenerateResult result, const Error *error)> &done) {
    TextsAtOnce(batch, pipeline, next, done).run();
}

} // namespace keel
