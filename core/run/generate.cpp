#include "run/generate.hpp"

#include "base/error.hpp"
#include "run/pin_text.hpp"
#include "text/text_stream.hpp"

#include <algorithm>
#include <chrono>

namespace keel {

const char *stop_reason_name(StopReason reason) {
    switch (reason) {
    case StopReason::end_token: return "end_token";
    case StopReason::stop_string: return "stop_string";
    case StopReason::max_tokens: return "max_tokens";
    case StopReason::cache_full: return "cache_full";
    case StopReason::device_lost: return "device_lost";
    case StopReason::cancelled: break;
    }
    return "cancelled";
}

namespace {

// Pins texts before the prompt is read. `first` is the number that the prompt's first token will
// have.
void pin_texts(Session &session, std::span<const int32_t> prompt, int64_t first,
               const GenerateOptions &options) {
    const Tokenizer &tokenizer = *session.pipeline().tokenizer();
    for (const std::string &text : options.pin) {
        const TokenRun run = find_text(tokenizer, prompt, text, options.pin_key);
        session.pin(first + run.from, first + run.to, options.pin_key);
    }
}

} // namespace

GenerateOptions generate_options(const pipeline::PipelineConfig &config) {
    GenerateOptions options;
    options.max_tokens = *config.generation.max_tokens;
    options.stop = *config.generation.stop;
    options.lookup = *config.generation.lookup;
    options.pin = *config.generation.pin;
    if (!config.generation.pin.is_default())
        options.pin_key =
            fmt::format("{}: {}", to_string(config.generation.pin.where), options.pin_key);
    SamplingParams &s = options.sampling;
    s.temperature = static_cast<float>(*config.sampling.temperature);
    s.top_k = static_cast<int32_t>(*config.sampling.top_k);
    s.top_p = static_cast<float>(*config.sampling.top_p);
    s.min_p = static_cast<float>(*config.sampling.min_p);
    s.repetition_penalty = static_cast<float>(*config.sampling.repetition_penalty);
    s.repetition_window = static_cast<int32_t>(*config.sampling.repetition_window);
    s.seed = static_cast<uint64_t>(*config.sampling.seed);
    return options;
}

Generation::Generation(Session &session, std::span<const int32_t> prompt,
                       const GenerateOptions &options, Prompt how)
    : session_(session), options_(options), start_(std::chrono::steady_clock::now()),
      sampler_(options.sampling),
      plain_greedy_(options.sampling.temperature == 0 && options.sampling.repetition_penalty == 1) {
    std::optional<int32_t> first;
    if (prompt.empty() && !session.pending() && how != Prompt::is_read) {
        if (session.tokens() == 0) first = session.pipeline().tokenizer()->bos_id();
        if (!first)
            throw_error(ErrorKind::usage,
                        "the prompt is empty, and the model names no token that begins a text; "
                        "give a prompt");
        prompt = {&*first, 1};
    }
    if (options.random) sampler_.restore_rng(*options.random);
    stream_ = std::make_unique<TextStream>(*session.pipeline().tokenizer(), options.stop);
    if (how == Prompt::is_read) return;
    if (!prompt.empty()) {
        set_prompt(prompt, how);
        if (how == Prompt::read_now) read_prompt();
    } else if (std::string why; session.can_take(1, &why)) {
        session.decode(*session.pending());
    } else {
        stop(StopReason::cache_full, why);
    }
    if (!stopped_ && unread().empty() && is_cancelled()) stop(StopReason::cancelled);
}

Generation::~Generation() = default;

void Generation::set_prompt(std::span<const int32_t> prompt, Prompt how) {
    if (session_.pending()) input_.push_back(*session_.pending());
    const int64_t pending = std::ssize(input_);
    input_.insert(input_.end(), prompt.begin(), prompt.end());
    before_ = session_.tokens();
    try {
        pin_texts(session_, prompt, before_ + pending, options_);
        if (how == Prompt::read_by_caller) session_.check_prompt(std::ssize(input_));
    } catch (...) {
        give_up_prompt();
        throw;
    }
}

void Generation::read_prompt() {
    bool is_read = false;
    try {
        is_read = session_.prefill(input_, true, 1, options_.progress);
    } catch (...) {
        give_up_prompt();
        throw;
    }
    read_ = input_.size();
    if (is_read) return;
    give_up_prompt();
    stop(StopReason::cancelled, how_much_stays());
}

void Generation::count_read(size_t n) {
    read_ += n;
    if (options_.progress) options_.progress("prefill", read_, input_.size());
}

void Generation::give_up_prompt() { session_.unpin(session_.tokens()); }

std::string Generation::how_much_stays() const {
    const int64_t stay = session_.tokens() - before_;
    if (stay == 0) return {};
    return fmt::format("{} of the prompt's {} tokens were read and stay", stay, input_.size());
}

bool Generation::is_cancelled() const { return session_.pipeline().host().cancelled(); }

void Generation::emit(const std::string &text, bool is_last) {
    result_.text += text;
    if (options_.on_text && !text.empty()) options_.on_text(text);
    if (options_.on_piece) give_piece(text, is_last);
}

// Gives the text to on_piece, with the tokens whose bytes are complete. U+FFFD can have more bytes
// than the token. So the count of bytes starts again whenever no text is held back.
void Generation::give_piece(const std::string &text, bool is_last) {
    TextPiece piece{.text = text, .ids = {}, .logprobs = {}, .is_last = is_last};
    size_t complete = 0;
    bytes_over_ += text.size();
    while (complete < text_bytes_.size() && text_bytes_[complete] <= bytes_over_)
        bytes_over_ -= text_bytes_[complete++];
    if (is_last || (!stream_->stopped() && !stream_->holds_back())) {
        complete = text_bytes_.size();
        bytes_over_ = 0;
    }
    text_bytes_.erase(text_bytes_.begin(),
                      text_bytes_.begin() + static_cast<std::ptrdiff_t>(complete));
    const size_t end = given_ + complete;
    for (; given_ < end; ++given_) {
        piece.ids.push_back(result_.ids[given_]);
        if (options_.logprobs) piece.logprobs.push_back(result_.logprobs[given_]);
    }
    options_.on_piece(std::move(piece));
}

void Generation::stop(StopReason reason, std::string detail) {
    result_.reason = reason;
    result_.detail = std::move(detail);
    stopped_ = true;
}

int32_t Generation::choose() {
    const bool is_last = std::ssize(result_.ids) + 1 >= options_.max_tokens;
    int32_t id = 0;
    if (needs_logits())
        id = sampler_.sample(row(), history());
    else if (!guess_.empty())
        id = static_cast<int32_t>(std::max_element(row().begin(), row().end()) - row().begin());
    else
        id = session_.greedy(runs_ahead_ && !is_last && options_.lookup == 0);
    if (result_.ids.empty()) {
        result_.first_token_seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }
    result_.ids.push_back(id);
    if (options_.logprobs)
        result_.logprobs.push_back(token_logprobs(row(), id, *options_.logprobs));
    if (options_.on_piece) text_bytes_.push_back(stream_->bytes_of(id));
    session_.set_pending(id);
    return id;
}

// ---- guesses ------------------------------------------------------------------------------------

// The logits from which the next token is chosen.
std::span<const float> Generation::row() {
    const auto size = static_cast<size_t>(session_.pipeline().model().vocab_size);
    const std::span<const float> rows = session_.logits();
    return guess_.empty() ? rows.last(size) : rows.subspan(row_ * size, size);
}

// The tokens before the token that is chosen next.
std::span<const int32_t> Generation::history() const {
    const std::span<const int32_t> all = session_.history();
    return guess_.empty() ? all : all.first(all.size() - (guess_.size() - 1 - row_));
}

// Returns true if the session has already taken in the chosen token, as a part of the guess.
bool Generation::is_guessed(int32_t id) const {
    return row_ + 1 < guess_.size() && guess_[row_ + 1] == id;
}

// Removes the guessed tokens that were not chosen.
void Generation::settle_guess() {
    if (guess_.empty()) return;
    const std::optional<int32_t> pending = session_.pending();
    session_.keep_guess(std::ssize(guess_) - 1, static_cast<int64_t>(row_));
    session_.set_pending(pending);
    gain_.count(true, static_cast<int64_t>(row_) + 1, GuessGain::Clock::now());
    guess_.clear();
    row_ = 0;
}

std::span<const int32_t> Generation::guess(int32_t id) {
    int64_t most = std::min(options_.lookup, options_.max_tokens - std::ssize(result_.ids) - 1);
    while (most > 0 && !session_.can_take(1 + most)) --most;
    const std::span<const int32_t> guess = lookup_.guess(session_.history(), id, most);
    return gain_.wants_guess() ? guess : std::span<const int32_t>{};
}

void Generation::advance(int32_t id) {
    if (is_guessed(id)) {
        ++row_;
        return;
    }
    if (options_.lookup == 0) return session_.decode(id);
    const std::span<const int32_t> guessed = guess(id);
    if (guessed.empty()) {
        gain_.count(false, 1, GuessGain::Clock::now());
        return session_.decode(id);
    }
    std::vector<int32_t> step{id};
    step.insert(step.end(), guessed.begin(), guessed.end());
    session_.decode_guess(step);
    // If the step fails, the session has no guess to settle.
    guess_ = std::move(step);
}

std::optional<int32_t> Generation::next() {
    const auto is_long_enough = [&] { return std::ssize(result_.ids) >= options_.max_tokens; };
    if (stopped_ || is_long_enough()) return std::nullopt;
    const int32_t id = choose();
    const bool ends =
        (session_.pipeline().tokenizer()->ends_generation(id) && !options_.ignore_end) ||
        std::binary_search(options_.end_ids.begin(), options_.end_ids.end(), id);
    if (ends) {
        stop(StopReason::end_token);
        return std::nullopt;
    }
    if (!is_guessed(id)) settle_guess();
    emit(stream_->push(id));
    std::string why;
    if (stream_->stopped()) {
        stop(StopReason::stop_string, std::string(stream_->stop_string()));
    } else if (is_cancelled()) {
        stop(StopReason::cancelled);
    } else if (!is_long_enough()) {
        // if the text is long enough, its last token needs no step and no room
        if (is_guessed(id) || session_.can_take(1, &why)) return id;
        stop(StopReason::cache_full, why);
    }
    return std::nullopt;
}

GenerateResult Generation::finish() {
    settle_guess();
    session_.drop_ahead();
    emit(stream_->finish(), true);
    if (stream_->stopped() && result_.reason != StopReason::stop_string) {
        result_.reason = StopReason::stop_string;
        result_.detail = std::string(stream_->stop_string());
    }
    result_.stats = session_.stats();
    result_.random = sampler_.rng_state();
    return std::move(result_);
}

GenerateResult generate(Session &session, std::span<const int32_t> prompt,
                        const GenerateOptions &options) {
    Generation generation(session, prompt, options);
    generation.run_ahead();
    try {
        while (const auto id = generation.next()) generation.advance(*id);
    } catch (const Error &error) {
        // the error is not thrown if a part of the text was generated; the result then has this
        // part
        if (!session.is_broken() || !generation.has_text()) throw;
        generation.stop(StopReason::device_lost, error.what());
    }
    return generation.finish();
}

} // namespace keel
