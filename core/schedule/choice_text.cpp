#include "schedule/choice_text.hpp"

#include "base/error.hpp"

#include <utility>

namespace keel {
namespace {

TextEvent failure(const Error &error) {
    TextEvent event;
    event.kind = TextEvent::Kind::failed;
    event.error_kind = error.kind();
    event.detail = error.what();
    return event;
}

} // namespace

uint64_t seed_of_choice(uint64_t seed, int64_t choice) {
    if (choice == 0) return seed;
    // splitmix64
    uint64_t mixed = seed + static_cast<uint64_t>(choice) * 0x9E3779B97F4A7C15U;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
    return mixed ^ (mixed >> 31);
}

void end_choices(ActiveRequest &request, RequestQueue &queue, int64_t first, int64_t last,
                 const TextEvent &event, bool have_seats) {
    for (int64_t choice = first; choice < last; ++choice) {
        // Frees seat and memory first, so that a client that got the event can submit again.
        if (have_seats) queue.leave_seat();
        const bool is_last = request.count_end(event);
        if (is_last) queue.release(request);
        TextEvent own = event;
        own.choice = choice;
        request.deliver(std::move(own));
        if (!is_last) continue;
        request.finish();
        queue.forget(request);
    }
}

ChoiceText::ChoiceText(std::unique_ptr<Session> session, std::shared_ptr<ActiveRequest> request,
                       int64_t number, ChoiceRoom &room)
    : RunningText(std::move(session)), request_(std::move(request)), number_(number), room_(room),
      unforked_(number == 0 ? request_->order.choices - 1 : 0) {}

ChoiceText::~ChoiceText() {
    if (!has_ended_) failed(Error(ErrorKind::resource, "the request was given up: out of memory"));
}

void ChoiceText::begin_prompt() {
    const TextOrder &order = request_->order;
    for (const auto &[from, to] : order.protect) session().pin(from, to, "protect");
    if (order.prompt_logprobs) {
        const auto vocabulary = static_cast<size_t>(session().pipeline().model().vocab_size);
        scores_.emplace(order.prompt, vocabulary, *order.prompt_logprobs);
    }
    request_->usage.cached_tokens = static_cast<uint64_t>(session().tokens());
    begin(std::span(order.prompt).subspan(request_->usage.cached_tokens), options(),
          Generation::Prompt::read_by_caller);
}

GenerateOptions ChoiceText::options() {
    GenerateOptions options = request_->order.options;
    options.sampling.seed = seed_of_choice(options.sampling.seed, number_);
    options.random.reset();
    options.on_text = nullptr;
    options.progress = nullptr;
    options.on_piece = [this](TextPiece piece) {
        if (piece.is_last) { // is delivered with the event of the end
            last_ = std::move(piece);
            return;
        }
        request_->note_token();
        TextEvent event;
        event.choice = number_;
        event.piece = std::move(piece);
        request_->deliver(std::move(event));
    };
    return options;
}

SessionBatch::RowReader *ChoiceText::begin_chunk(bool is_last) {
    request_->note_step();
    // Nothing was evicted yet. After the last chunk the policy may act.
    if (is_last && !request_->policy->plan->keeps_all()) room_.kept.add_copy(session());
    if (!scores_) return nullptr;
    scores_->begin_part(request_->order.prompt.size() - text().unread().size());
    return &*scores_;
}

void ChoiceText::prompt_read(RunningTexts &texts) {
    const TextOrder &order = request_->order;
    if (scores_) request_->deliver_prompt(scores_->take_scores());
    scores_.reset();
    while (unforked_ > 0) {
        const int64_t number = order.choices - unforked_;
        std::unique_ptr<Session> copy;
        try {
            copy = session().fork();
        } catch (const Error &error) { // the choices that have a session go on
            unforked_ = 0;
            end_choices(*request_, room_.queue, number, order.choices, failure(error));
            break;
        }
        auto fork = std::make_unique<ChoiceText>(std::move(copy), request_, number, room_);
        --unforked_; // now `fork` ends the choice
        try {
            fork->begin({}, fork->options(), Generation::Prompt::is_read);
        } catch (const Error &error) {
            fork->failed(error);
            continue;
        }
        texts.add(std::move(fork));
    }
    room_.queue.shrink(*request_, request_->bound.after_prompt(order.choices));
}

void ChoiceText::ended(GenerateResult result) {
    generated_ = result.ids.size();
    TextEvent event;
    event.kind = TextEvent::Kind::end;
    event.piece = std::move(last_);
    event.reason = result.reason;
    event.detail = std::move(result.detail);
    end(std::move(event));
}

void ChoiceText::failed(const Error &error) {
    if (has_generation()) generated_ = text().generated();
    end(failure(error));
}

void ChoiceText::end(TextEvent event) {
    has_ended_ = true;
    note_usage();
    // Frees the memory before another request begins.
    std::unique_ptr<Session> used = take_session();
    if (number_ == 0 && event.kind == TextEvent::Kind::end) {
        const uint64_t freed = request_->left == 1 ? request_->reserved : 0;
        room_.kept.add(std::move(used), request_->policy, freed);
    }
    used.reset();
    room_.note_change();
    const TextEvent of_others = event;
    event.choice = number_;
    const int64_t first = request_->order.choices - std::exchange(unforked_, 0);
    end_choices(*request_, room_.queue, number_, number_ + 1, event);
    end_choices(*request_, room_.queue, first, request_->order.choices, of_others);
}

void ChoiceText::note_usage() {
    RequestUsage &usage = request_->usage;
    const SessionStats &stats = session().stats();
    usage.generated_tokens += generated_;
    request_->evicted += stats.evicted_tokens;
    if (number_ != 0) return;
    usage.kept_tokens = static_cast<uint64_t>(session().cache().cache().max_length());
    usage.evicted_tokens = stats.evicted_tokens;
    usage.evictions = stats.evictions;
    usage.policy_seconds = stats.eviction_seconds;
    usage.cache_peak_bytes = stats.held_peak_bytes;
}

} // namespace keel
