#include "run/generate_batch.hpp"

#include <algorithm>

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
            choose();
            if (!seats_.empty()) step();
            if (seats_.empty() && !more_) return;
        }
    }

  private:
    struct Seat {
        std::unique_ptr<Session> session;
        std::unique_ptr<Generation> text;
        size_t number;
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
                    std::make_unique<Generation>(*seat.session, prompt->ids, prompt->options);
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

    // Chooses the next token of each text. The seat of a text that has ended becomes free.
    void choose() {
        sessions_.clear();
        ids_.clear();
        read_ = SessionBatch::Read::greedy;
        for (size_t i = 0; i < seats_.size();) {
            std::optional<int32_t> id;
            try {
                id = seats_[i].text->next();
            } catch (const Error &error) {
                leave(i, &error);
                continue;
            }
            if (!id) {
                leave(i, nullptr);
                continue;
            }
            if (seats_[i].text->needs_logits()) read_ = SessionBatch::Read::logits;
            sessions_.push_back(seats_[i].session.get());
            ids_.push_back(*id);
            ++i;
        }
    }

    void step() {
        const auto outcomes = batch_.decode(sessions_, ids_, read_);
        // runs from the end, so that removing an entry does not change the indices of earlier
        // entries
        for (size_t i = outcomes.size(); i-- > 0;) {
            const SessionBatch::Outcome &outcome = outcomes[i];
            if (outcome.kind == SessionBatch::Outcome::Kind::full) {
                seats_[i].text->stop(StopReason::cache_full, outcome.detail);
                leave(i, nullptr);
            } else if (outcome.kind == SessionBatch::Outcome::Kind::failed) {
                const Error error = outcome.error();
                leave(i, &error);
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
    std::vector<Session *> sessions_;
    std::vector<int32_t> ids_;
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
