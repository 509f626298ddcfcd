#include "schedule/running_texts.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <optional>

namespace keel {

RunningText::~RunningText() = default;

void RunningText::begin(std::span<const int32_t> prompt, const GenerateOptions &options,
                        Generation::Prompt how) {
    text_ = std::make_unique<Generation>(*session_, prompt, options, how);
}

std::unique_ptr<Session> RunningText::take_session() {
    text_.reset();
    return std::move(session_);
}

void RunningTexts::step() {
    choose();
    forget_gone();
    parts_.clear();
    text_of_.clear();
    read_ = SessionBatch::Read::greedy;
    add_decodes();
    add_chunks();
    if (parts_.empty()) return;
    ++counters_.steps;
    if (!decode_alone()) run_batch();
    forget_gone();
}

// Chooses the next token of each text whose prompt is read.
void RunningTexts::choose() {
    const bool is_alone = texts_.size() == 1;
    for (size_t i = 0; i < texts_.size(); ++i) {
        RunningText &text = *texts_[i];
        text.text().run_ahead(is_alone);
        const size_t before = text.text().generated();
        std::optional<Error> error;
        bool stays = false;
        try {
            stays = goes_on(text);
        } catch (const Error &e) {
            if (pipeline_.engines().lost_device() != nullptr) throw;
            error = e;
        }
        counters_.generated_tokens += text.text().generated() - before;
        if (!stays) leave(i, error ? &*error : nullptr);
    }
}

// Returns false if the text has ended.
bool RunningTexts::goes_on(RunningText &text) {
    Generation &generation = text.text();
    const bool is_read = generation.unread().empty();
    if (text.is_cancelled()) {
        if (!is_read) generation.give_up_prompt();
        generation.stop(StopReason::cancelled);
        return false;
    }
    if (!is_read) return true;
    const std::optional<int32_t> id = generation.next();
    if (id) text.next_ = *id;
    return id.has_value();
}

void RunningTexts::add_decodes() {
    for (size_t i = 0; i < texts_.size(); ++i) {
        const RunningText &text = *texts_[i];
        if (!text.text().unread().empty()) continue;
        if (text.text().needs_logits()) read_ = SessionBatch::Read::logits;
        parts_.push_back({&text.session(), {&text.next_, 1}, StepKind::decode});
        text_of_.push_back(i);
    }
}

// Adds chunks of the prompts that are not read, the oldest first. A chunk that does not fit waits
// for a later step, because a cut chunk could change what a policy keeps.
void RunningTexts::add_chunks() {
    size_t room = pipeline_.graph().max_tokens();
    for (size_t i = 0; i < texts_.size(); ++i) {
        RunningText &text = *texts_[i];
        const std::span<const int32_t> unread = text.text().unread();
        if (unread.empty()) continue;
        const auto n = static_cast<size_t>(text.session().next_chunk(std::ssize(unread)));
        if (n > room) continue;
        room -= n;
        const bool is_last = n == unread.size();
        if (is_last && (text.text().needs_logits() || text.forks()))
            read_ = SessionBatch::Read::logits;
        parts_.push_back({&text.session(), unread.first(n),
                          is_last ? StepKind::prefill_end : StepKind::prefill_chunk,
                          text.begin_chunk()});
        text_of_.push_back(i);
    }
}

// Runs the step by Session::decode if it has one token of the only text. Returns false if it has
// not.
bool RunningTexts::decode_alone() {
    if (texts_.size() != 1 || parts_.front().kind != StepKind::decode) {
        alone_ = nullptr;
        return false;
    }
    RunningText &text = *texts_.front();
    try {
        // Another sequence may have replaced the arenas since this text's last step.
        if (alone_ != &text) {
            text.session().drop_ahead();
            text.session().cache().caches().refresh();
        }
        alone_ = &text;
        text.session().decode(text.next_);
    } catch (const Error &error) {
        if (pipeline_.engines().lost_device() != nullptr) throw;
        leave(0, &error);
    }
    return true;
}

void RunningTexts::run_batch() {
    using Kind = SessionBatch::Outcome::Kind;
    const auto outcomes = batch_.step(parts_, read_);
    for (size_t p = 0; p < outcomes.size(); ++p) {
        const SessionBatch::Outcome &outcome = outcomes[p];
        const bool is_decode = parts_[p].kind == StepKind::decode;
        if (outcome.kind == Kind::done) {
            if (!is_decode) note_chunk(p);
        } else if (outcome.kind == Kind::full && is_decode) {
            texts_[text_of_[p]]->text().stop(StopReason::cache_full, outcome.detail);
            leave(text_of_[p], nullptr);
        } else {
            const Error error = outcome.error();
            leave(text_of_[p], &error);
        }
    }
}

// A chunk of a prompt was taken in.
void RunningTexts::note_chunk(size_t part) {
    RunningText &text = *texts_[text_of_[part]];
    counters_.prompt_tokens += parts_[part].ids.size();
    try {
        text.text().count_read(parts_[part].ids.size());
        if (text.text().unread().empty()) text.prompt_read(*this);
    } catch (const Error &error) {
        leave(text_of_[part], &error);
    }
}

void RunningTexts::leave(size_t i, const Error *error) {
    const std::unique_ptr<RunningText> text = std::move(texts_[i]);
    if (alone_ == text.get()) alone_ = nullptr;
    if (error != nullptr) return text->failed(*error);
    GenerateResult result;
    try {
        result = text->text().finish();
    } catch (const Error &e) {
        return text->failed(e);
    }
    text->ended(std::move(result));
}

void RunningTexts::forget_gone() { std::erase(texts_, nullptr); }

void RunningTexts::fail_all(const Error &error) {
    alone_ = nullptr;
    for (size_t i = 0; i < texts_.size(); ++i)
        if (texts_[i]) leave(i, &error);
    forget_gone();
}

} // namespace keel
