#include "run/conversation.hpp"

#include "base/display.hpp"
#include "base/log.hpp"
#include "base/suggest.hpp"
#include "run/session_file.hpp"
#include "text/text_stream.hpp"

#include <algorithm>
#include <fmt/ranges.h>

namespace keel {
namespace {

constexpr const char *note_name = "chat/1";
constexpr uint64_t most_turns = 1000000;

class TextWriter final : public StateWriter {
  public:
    void write(const void *data, size_t bytes) override {
        text.append(static_cast<const char *>(data), bytes);
    }
    std::string text;
};

} // namespace

ChatTemplate choose_chat_template(const std::filesystem::path &model, std::string_view name,
                                  const ChatWays &ways) {
    const std::vector<std::string> names = ChatTemplate::names();
    if (!name.empty()) {
        if (auto chat = ChatTemplate::by_name(name)) return *std::move(chat);
        throw_error(ErrorKind::usage, "unknown chat template '{}'{}; the templates are {}",
                    printable(name, 60), did_you_mean(std::string(name), names),
                    fmt::join(names, ", "));
    }
    FoundChatTemplate found = load_chat_template(model);
    if (!found.has_template()) {
        throw_error(ErrorKind::usage,
                    "{}: the model names no chat template, so the model was made to continue a "
                    "text, not to answer (use {} to continue a text); to chat anyway, use {} with "
                    "one of {}",
                    printable(model.string(), 400), ways.plain, ways.chosen,
                    fmt::join(names, ", "));
    }
    try {
        return found.open();
    } catch (const Error &error) {
        throw_error(ErrorKind::usage,
                    "{}; Keel cannot use the model's chat template, so choose the most similar "
                    "template with {}: {}",
                    error.what(), ways.chosen, fmt::join(names, ", "));
    }
}

Conversation::Conversation(Session &session, ChatTemplate chat, std::optional<std::string> system)
    : session_(session), chat_(std::move(chat)), system_(std::move(system)) {
    reset();
}

void Conversation::reset() {
    session_.reset();
    turns_.clear();
    random_.reset();
    question_from_ = question_to_ = 0;
    protect_system();
}

// Returns the number of tokens at the front that belong to the system prompt. These tokens are the
// same for any question after the system prompt.
int64_t Conversation::system_tokens() const {
    const Tokenizer &tokenizer = *session_.pipeline().tokenizer();
    const std::vector<ChatPiece> part = chat_.system_part(tokenizer, system_);
    if (part.empty()) return 0;
    ChatTemplate::Frame frame = chat_.frame(tokenizer, system_);
    frame.before.push_back({"Q", false});
    for (ChatPiece &piece : frame.after) frame.before.push_back(std::move(piece));
    // A token may cross the border of the system prompt. So only tokens that stay the same with a
    // question after it are counted.
    const std::vector<int32_t> begin = chat_.encode(tokenizer, part, false),
                               question = chat_.encode(tokenizer, frame.before, false);
    const auto [a, b] = std::mismatch(begin.begin(), begin.end(), question.begin(), question.end());
    return a - begin.begin();
}

void Conversation::protect_system() {
    const PolicySetup &plan = session_.cache().setup();
    if (!plan.config().protect_system_prompt || plan.keeps_all()) return;
    session_.protect_prefix(system_tokens(), "the system prompt");
}

void Conversation::take_over(std::vector<ChatMessage> turns) {
    reset();
    turns_ = std::move(turns);
}

std::vector<ChatMessage> Conversation::messages_with(std::string_view question) const {
    std::vector<ChatMessage> all;
    if (system_) all.push_back({ChatRole::system, *system_});
    all.insert(all.end(), turns_.begin(), turns_.end());
    all.push_back({ChatRole::user, std::string(question)});
    return all;
}

std::vector<int32_t> Conversation::encode_question(std::string_view question) const {
    const Tokenizer &tokenizer = *session_.pipeline().tokenizer();
    if (session_.tokens() > 0) {
        std::vector<ChatPiece> pieces = chat_.end_of_answer();
        for (ChatPiece &piece : chat_.user_turn(question, false))
            pieces.push_back(std::move(piece));
        return chat_.encode(tokenizer, pieces, true);
    }
    return chat_.encode(tokenizer, chat_.conversation(messages_with(question)), false);
}

// Returns the tokens of what follows the last answer, if the template renders everything up to the
// end of this answer as the session has it. The session has the rendering of all messages before
// the last answer, and then the answer as the model wrote it.
std::optional<std::vector<int32_t>>
Conversation::new_tokens(std::span<const ChatMessage> all) const {
    const Tokenizer &tokenizer = *session_.pipeline().tokenizer();
    const auto before_answer = all.first(all.size() - 2);
    std::vector<ChatPiece> known = chat_.prompt(tokenizer, before_answer);
    known.push_back({all[all.size() - 2].content, false});
    // one character in `marks` for each byte of `text`
    std::string text, marks;
    for (const ChatPiece &piece : known) {
        text += piece.text;
        marks.append(piece.text.size(), piece.is_markup ? 'm' : 'd');
    }
    std::vector<ChatPiece> rest;
    size_t at = 0;
    for (const ChatPiece &piece : chat_.prompt(tokenizer, all)) {
        const size_t same = std::min(piece.text.size(), text.size() - at);
        if (text.compare(at, same, piece.text, 0, same) != 0 ||
            marks.compare(at, same, std::string(same, piece.is_markup ? 'm' : 'd')) != 0)
            return std::nullopt;
        at += same;
        if (same < piece.text.size()) rest.push_back({piece.text.substr(same), piece.is_markup});
    }
    if (at < text.size() || rest.empty()) return std::nullopt;
    return chat_.encode(tokenizer, rest, true);
}

// Renders the conversation with a question, and returns the tokens that the session must read. If
// the template changed earlier turns, truncates the session first and sets `was_truncated`.
std::vector<int32_t> Conversation::render_question(std::string_view question, bool &was_truncated) {
    const Tokenizer &tokenizer = *session_.pipeline().tokenizer();
    const std::vector<ChatMessage> all = messages_with(question);
    if (session_.tokens() > 0 && turns_.size() >= 2)
        if (auto ids = new_tokens(all)) return *std::move(ids);
    std::vector<int32_t> ids = chat_.encode(tokenizer, chat_.prompt(tokenizer, all), false);
    if (ids.empty())
        throw_error(ErrorKind::input, "the model's chat template gives no text for this question");
    if (session_.tokens() == 0) return ids;
    const auto history = session_.history();
    const int64_t most = std::min<int64_t>(std::ssize(history), std::ssize(ids) - 1);
    const auto [end, other] = std::mismatch(history.begin(), history.begin() + most, ids.begin());
    int64_t same = end - history.begin();
    was_truncated = true;
    log().debug("the chat template changed earlier turns, so {} tokens are read again",
                session_.tokens() - same);
    take_back(same, std::nullopt);
    if (session_.tokens() == 0) same = 0; // the session reads everything again
    ids.erase(ids.begin(), ids.begin() + same);
    return ids;
}

// Truncates the cache to `tokens` tokens. If one of these tokens was evicted in the meantime, it
// cannot be restored. Then the session reads the whole conversation again with the next question.
void Conversation::take_back(int64_t tokens, std::optional<int32_t> pending) {
    try {
        session_.truncate(session_.tokens() - tokens);
        session_.set_pending(pending);
    } catch (const Error &) {
        read_anew();
    }
}

// Empties the session, so that it reads the whole conversation again. The random numbers continue.
void Conversation::read_anew() {
    const std::optional<Rng::State> random = random_;
    take_over(std::vector<ChatMessage>(turns_));
    random_ = random;
}

// Removes the tokens of a stop string from the cache. (A stop string is an end mark that is not a
// token.) These tokens are in the cache, but the answer's text does not have them.
void Conversation::drop_stop_string(const GenerateResult &result, size_t text_bytes,
                                    int64_t before) {
    const Tokenizer &tokenizer = *session_.pipeline().tokenizer();
    size_t kept = result.ids.size();
    while (kept > 0 &&
           tokenizer.decode(std::span(result.ids).first(kept), TextStream::behind_prompt).size() >
               text_bytes)
        --kept;
    const int64_t wanted = before + static_cast<int64_t>(kept);
    if (wanted < session_.tokens()) {
        take_back(wanted, std::nullopt);
    } else {
        session_.set_pending(std::nullopt);
    }
}

GenerateResult Conversation::ask(std::string_view question, const GenerateOptions &given) {
    const Tokenizer &tokenizer = *session_.pipeline().tokenizer();
    GenerateOptions options = given;
    options.pin.clear(); // the pins were parts of the prompt, and do not apply to later questions
    if (!options.ignore_end) options.end_ids = chat_.end_ids(tokenizer);
    for (std::string &mark : chat_.stop_strings(tokenizer)) options.stop.push_back(std::move(mark));
    if (random_) options.random = random_;
    // The template can begin an answer with a fixed text. This text is not part of the answer.
    const std::string &lead = chat_.format().answer_lead;
    bool at_start = true;
    if (given.on_text && !lead.empty()) {
        options.on_text = [&](std::string_view text) {
            if (at_start && text.starts_with(lead)) text.remove_prefix(lead.size());
            at_start = false;
            if (!text.empty()) given.on_text(text);
        };
    }
    bool was_truncated = false;
    const std::vector<int32_t> ids = chat_.jinja() != nullptr
                                         ? render_question(question, was_truncated)
                                         : encode_question(question);
    const int64_t before = session_.tokens();
    const std::optional<int32_t> pending = session_.pending();
    // Removes the question from the session. A truncated session lacks a part of the last answer,
    // so it reads the whole conversation again with the next question.
    const auto remove_question = [&] {
        if (was_truncated)
            read_anew();
        else
            take_back(before, pending);
    };
    GenerateResult result;
    try {
        result = generate(session_, ids, options);
    } catch (...) { // for example, the question did not fit, or on_text threw
        remove_question();
        throw;
    }
    if (result.reason == StopReason::device_lost)
        throw_error(ErrorKind::runtime, "{}", result.detail);
    if (result.ids.empty()) {
        remove_question();
        result.detail.clear(); // the question was removed, so there is nothing to report
        return result;
    }
    random_ = result.random;
    const size_t text_bytes = result.text.size();
    if (!lead.empty() && result.text.starts_with(lead)) result.text.erase(0, lead.size());
    question_from_ = before + (pending ? 1 : 0);
    question_to_ = question_from_ + std::ssize(ids);
    turns_.push_back({ChatRole::user, std::string(question)});
    turns_.push_back({ChatRole::assistant, result.text});
    if (result.reason == StopReason::end_token)
        session_.set_pending(std::nullopt); // the template writes the end token
    if (result.reason == StopReason::stop_string)
        drop_stop_string(result, text_bytes, before + std::ssize(ids) + (pending ? 1 : 0));
    return result;
}

int64_t Conversation::pin_question() {
    if (question_from_ == question_to_ || session_.tokens() < question_to_)
        throw_error(ErrorKind::usage,
                    "/pin: the cache has no question to pin; ask a question first, then pin it");
    session_.pin(question_from_, question_to_, "/pin");
    return session_.cache().pinned_tokens();
}

void Conversation::save(const std::filesystem::path &path) {
    TextWriter note;
    note.put_text(chat_.name());
    note.put(static_cast<uint32_t>(system_ ? 1 : 0));
    note.put_text(system_.value_or(""));
    note.put(static_cast<uint64_t>(turns_.size()));
    for (const ChatMessage &turn : turns_) note.put_text(turn.content);
    save_session(session_, path, {random_, {{note_name, std::move(note.text)}}});
}

void Conversation::read_note(const std::string &note, std::vector<ChatMessage> &turns,
                             std::optional<std::string> &system, const std::string &file) const {
    StateReader in(std::as_bytes(std::span(note)), file);
    const std::string name = in.get_text("the chat template");
    if (name != chat_.name()) {
        in.fail("the chat was saved with the template {}, but this chat uses {}; start this chat "
                "with the saved template",
                printable(name, 60), chat_.name());
    }
    const bool has_system = in.get<uint32_t>("the system prompt") != 0;
    std::string text = in.get_text("the system prompt");
    if (has_system) system = std::move(text);
    const auto count = in.get<uint64_t>("the turns");
    if (count > most_turns || count % 2 != 0)
        in.fail("expected an even number of turns that is not too large, found {} turns; the file "
                "is damaged",
                count);
    for (uint64_t i = 0; i < count; ++i)
        turns.push_back({i % 2 == 0 ? ChatRole::user : ChatRole::assistant, in.get_text("a turn")});
}

void Conversation::load(const std::filesystem::path &path) {
    std::vector<ChatMessage> turns;
    std::optional<std::string> system;
    const std::string file = printable(path.string(), 400);
    const auto check = [&](const SessionExtras &found) {
        const auto note = found.notes.find(note_name);
        if (note == found.notes.end()) {
            throw_error(ErrorKind::input,
                        "{}: the saved session has no chat; load it with 'keel run --load-session'",
                        file);
        }
        read_note(note->second, turns, system, file);
    };
    try {
        random_ = load_session(session_, path, check).random;
    } catch (...) {
        // the session saved an empty cache, so the next question reads the whole conversation
        if (session_.tokens() == 0) read_anew();
        throw;
    }
    turns_ = std::move(turns);
    system_ = std::move(system);
    question_from_ = question_to_ = 0;
}

} // namespace keel
