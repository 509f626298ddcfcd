#pragma once

#include "schedule/kept_sessions.hpp"
#include "schedule/prompt_scores.hpp"
#include "schedule/request_queue.hpp"
#include "schedule/running_texts.hpp"

#include <memory>
#include <optional>

namespace keel {

// One choice of a request, while it runs. It delivers the events of the choice. The first choice
// reads the prompt; then its session is forked for the other choices.
class ChoiceText final : public RunningText {
  public:
    ChoiceText(std::unique_ptr<Session> session, std::shared_ptr<ActiveRequest> request,
               int64_t number, RequestQueue &queue, KeptSessions &kept);
    // If the choice has not ended, it fails.
    ~ChoiceText() override;

    // Pins the protected ranges and begins to read the prompt. For the first choice, whose session
    // is empty or has the first tokens of the prompt.
    void begin_prompt();

    bool is_cancelled() const override { return request_->is_cancelled; }
    SessionBatch::RowReader *begin_chunk() override;
    bool forks() const override { return request_->order.choices > 1; }
    void prompt_read(RunningTexts &texts) override;
    void ended(GenerateResult result) override;
    void failed(const Error &error) override;

  private:
    GenerateOptions options();
    void end(TextEvent event);
    void note_usage();

    std::shared_ptr<ActiveRequest> request_;
    int64_t number_;
    RequestQueue &queue_;
    KeptSessions &kept_;
    std::optional<PromptScores> scores_;
    TextPiece last_;       // the piece of Generation::finish()
    size_t generated_ = 0; // tokens, known at the end
    bool has_ended_ = false;
    int64_t unforked_ = 0; // choices that have no session yet; they end with this one
};

// Ends choices `first` to `last` - 1 of a request that have no session, with the same event.
// `have_seats`: they have seats.
void end_choices(ActiveRequest &request, RequestQueue &queue, int64_t first, int64_t last,
                 const TextEvent &event, bool have_seats = true);

// The seed of a choice's random numbers. The first choice has the request's own seed.
uint64_t seed_of_choice(uint64_t seed, int64_t choice);

} // namespace keel
