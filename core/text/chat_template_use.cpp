// What a chat needs from a template of either kind: prompts, the text around a question, the ends
// of answers.
#include "text/chat_template.hpp"

#include "base/error.hpp"
#include "text/chat_prompt.hpp"

#include <algorithm>
#include <ctime>

namespace keel {
namespace {

// The time of a date such as "26 Jul 2024", at noon. nullopt if the text is no such date.
std::optional<std::time_t> time_of(std::string_view date) {
    std::tm parts{};
    const std::string text(date);
    const char *end = ::strptime(text.c_str(), "%d %b %Y", &parts);
    if (end == nullptr || *end != '\0') return std::nullopt;
    parts.tm_hour = 12;
    parts.tm_isdst = -1;
    return std::mktime(&parts);
}

void add_pieces(std::vector<ChatPiece> &to, std::vector<ChatPiece> more) {
    to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// A system prompt, if there is one, and a question.
std::vector<ChatMessage> question_of(std::optional<std::string_view> system,
                                     std::string_view question) {
    std::vector<ChatMessage> out;
    if (system) out.push_back({ChatRole::system, std::string(*system)});
    out.push_back({ChatRole::user, std::string(question)});
    return out;
}

// The bytes of the last question "-" in a rendered text. Throws Error(input) if the template does
// not write it.
std::size_t place_of_question(const jinja::Text &text) {
    if (text.data().empty() || text.bytes()[text.data().back().end - 1] != '-')
        throw_error(ErrorKind::input,
                    "the model's chat template does not write the user's question; choose another "
                    "template by its name");
    return text.data().back().end - 1;
}

// The special or added token with which a text begins.
std::optional<std::int32_t> first_mark(const Tokenizer &tokenizer, const std::string &text) {
    const auto eos = tokenizer.eos_id();
    if (eos && text.starts_with(tokenizer.piece(*eos)) && !text.empty()) return eos;
    const std::vector<std::int32_t> ids =
        tokenizer.encode(text, {.add_special = false, .continues = true});
    if (ids.empty() || tokenizer.kind(ids.front()) == TokenKind::ordinary) return std::nullopt;
    return ids.front();
}

} // namespace

jinja::Text ChatTemplate::render(const Tokenizer &tokenizer, std::span<const ChatMessage> messages,
                                 std::string_view today) const {
    ChatRequest request = chat_request(messages);
    if (!today.empty()) {
        request.now = time_of(today);
        if (!request.now)
            throw_error(ErrorKind::usage, "today: expected a date such as '26 Jul 2024', found {}",
                        quote_text(today));
    }
    return jinja_->render(request, tokenizer);
}

std::vector<ChatPiece> ChatTemplate::prompt(const Tokenizer &tokenizer,
                                            std::span<const ChatMessage> messages,
                                            std::string_view today) const {
    if (!jinja_) return conversation(messages, today);
    return chat_pieces(render(tokenizer, messages, today));
}

ChatTemplate::Frame ChatTemplate::frame(const Tokenizer &tokenizer,
                                        std::optional<std::string_view> system,
                                        std::string_view today) const {
    Frame out;
    if (!jinja_) {
        out.before = begin(system, today);
        std::vector<ChatPiece> turn = user_turn("-", true);
        const auto words =
            std::find_if(turn.begin(), turn.end(), [](const ChatPiece &p) { return !p.is_markup; });
        add_pieces(out.before, {turn.begin(), words});
        out.after.assign(std::next(words), turn.end());
        out.trims = format_.trim;
        return out;
    }
    const jinja::Text text = render(tokenizer, question_of(system, "-"), today);
    const std::size_t at = place_of_question(text);
    out.before = chat_pieces(text.part(0, at));
    out.after = chat_pieces(text.part(at + 1, text.size()));
    const jinja::Text spaced = render(tokenizer, question_of(system, " -"), today);
    out.trims = spaced.size() == text.size();
    return out;
}

std::vector<ChatPiece> ChatTemplate::system_part(const Tokenizer &tokenizer,
                                                 std::optional<std::string_view> system) const {
    if (!jinja_) {
        if (!system && !format_.default_system) return {};
        return begin(system);
    }
    const jinja::Text first = render(tokenizer, question_of(system, "-"), {});
    std::size_t size = place_of_question(first);
    try {
        // the marks that precede a later question
        std::vector<ChatMessage> messages = question_of(system, "-");
        messages.push_back({ChatRole::assistant, "-"});
        messages.push_back({ChatRole::user, "-"});
        const jinja::Text later = render(tokenizer, messages, {});
        const std::size_t end = place_of_question(later);
        std::size_t same = 0;
        while (same < size && same < end &&
               first.bytes()[size - 1 - same] == later.bytes()[end - 1 - same] &&
               later.bytes()[end - 1 - same] != '-')
            ++same;
        size -= same;
    } catch (const Error &) {
        // the template refuses this conversation, so the marks of a question are not known
    }
    while (size > 0 && (static_cast<unsigned char>(first.bytes()[size]) & 0xC0) == 0x80) --size;
    return chat_pieces(first.part(0, size));
}

std::vector<std::int32_t> ChatTemplate::end_ids(const Tokenizer &tokenizer) const {
    std::vector<std::int32_t> ids = tokenizer.end_ids();
    if (const auto eos = tokenizer.eos_id()) ids.push_back(*eos);
    for (const std::string &mark : format_.end_marks)
        if (const auto id = tokenizer.find_token(mark)) ids.push_back(*id);
    if (jinja_)
        if (const auto id = first_mark(tokenizer, jinja_->end_mark(tokenizer))) ids.push_back(*id);
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
}

std::vector<std::string> ChatTemplate::stop_strings(const Tokenizer &tokenizer) const {
    // models of a named family write only the first mark; Keel uses the other marks only if they
    // are tokens
    const std::string mark = jinja_ ? jinja_->end_mark(tokenizer) : format_.end_marks.front();
    const bool is_token = jinja_ ? first_mark(tokenizer, mark).has_value()
                                 : mark == "{eos}" || tokenizer.find_token(mark).has_value();
    if (mark.empty() || is_token) return {};
    return {mark};
}

} // namespace keel
