// The families of chat templates: the format in which each family writes a conversation.
#include "text/chat_template.hpp"

#include "base/error.hpp"
#include "text/utf8.hpp"

#include <algorithm>
#include <array>
#include <ctime>

namespace keel {

namespace {

using Format = ChatTemplate::Format;

// The fixed date in Meta's templates, for models whose template does not use the current date.
constexpr std::string_view llama_date = "26 Jul 2024";

Format llama3() {
    Format f;
    f.begin = "{bos}";
    f.system_open = "<|start_header_id|>system<|end_header_id|>\n\n";
    f.system_close = "<|eot_id|>";
    f.user_open = "<|start_header_id|>user<|end_header_id|>\n\n";
    f.user_close = "<|eot_id|>";
    f.answer_open = "<|start_header_id|>assistant<|end_header_id|>\n\n";
    f.answer_close = "<|eot_id|>";
    f.trim = f.trim_answer = true;
    f.end_marks = {"<|eot_id|>", "<|eom_id|>"};
    return f;
}

Format llama3_dated(std::string_view date) {
    Format f = llama3();
    f.preamble = "Cutting Knowledge Date: December 2023\nToday Date: " + std::string(date) + "\n\n";
    return f;
}

Format chatml() {
    Format f;
    f.system_open = "<|im_start|>system\n";
    f.system_close = "<|im_end|>\n";
    f.user_open = "<|im_start|>user\n";
    f.user_close = "<|im_end|>\n";
    f.answer_open = "<|im_start|>assistant\n";
    f.answer_close = "<|im_end|>\n";
    f.end_marks = {"<|im_end|>", "<|endoftext|>"};
    return f;
}

Format llama2() {
    Format f;
    f.system_in_user = true;
    f.system_open = "<<SYS>>\n";
    f.system_close = "\n<</SYS>>\n\n";
    f.user_open = "{bos}[INST] ";
    f.user_close = " [/INST]";
    f.answer_lead.assign(1, ' '); // not `= " "`, for which GCC 12 gives a false warning
    f.answer_close = " {eos}";
    f.trim = f.trim_answer = true;
    f.end_marks = {"{eos}"};
    return f;
}

Format mistral(std::string user_open, std::string user_close, std::string answer_lead) {
    Format f;
    f.begin = "{bos}";
    f.system_in_user = true;
    f.system_close = "\n\n";
    f.user_open = std::move(user_open);
    f.user_close = std::move(user_close);
    f.answer_lead = std::move(answer_lead);
    f.answer_close = "{eos}";
    f.end_marks = {"{eos}"};
    return f;
}

Format mistral_v3() {
    Format f = mistral("[INST] ", "[/INST]", " ");
    f.trim_answer = true;
    return f;
}

Format zephyr() {
    Format f;
    f.system_open = "<|system|>\n";
    f.system_close = "{eos}\n";
    f.user_open = "<|user|>\n";
    f.user_close = "{eos}\n";
    f.answer_open = "<|assistant|>\n";
    f.answer_close = "{eos}\n";
    f.end_marks = {"{eos}"};
    return f;
}

Format gemma() {
    Format f;
    f.begin = "{bos}";
    f.system_in_user = true; // Gemma 2 has no system prompt; Gemma 3 writes it like this
    f.system_close = "\n\n";
    f.user_open = "<start_of_turn>user\n";
    f.user_close = "<end_of_turn>\n";
    f.answer_open = "<start_of_turn>model\n";
    f.answer_close = "<end_of_turn>\n";
    f.trim = f.trim_answer = true;
    f.end_marks = {"<end_of_turn>"};
    return f;
}

struct Named {
    std::string_view name;
    Format (*make)();
};

constexpr std::array<Named, 10> families{{
    {"llama2", &llama2},
    {"llama3", &llama3},
    {"llama3.1", [] { return llama3_dated(llama_date); }},
    {"llama3.2", [] { return llama3_dated("{date}"); }},
    {"chatml", &chatml},
    {"mistral-v1", [] { return mistral(" [INST] ", " [/INST]", " "); }},
    {"mistral-v3", &mistral_v3},
    {"mistral-tekken", [] { return mistral("[INST]", "[/INST]", ""); }},
    {"zephyr", &zephyr},
    {"gemma", &gemma},
}};

std::string this_day() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    localtime_r(&now, &parts);
    constexpr std::array<const char *, 12> months{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    return fmt::format("{:02} {} {}", parts.tm_mday, months[static_cast<std::size_t>(parts.tm_mon)],
                       1900 + parts.tm_year);
}

// The characters that Python's str.strip() and Jinja's trim remove.
bool is_blank(char32_t c) { return is_unicode_space(c) || (c >= 0x1C && c <= 0x1F); }

std::string_view trimmed(std::string_view text) {
    while (!text.empty()) {
        std::size_t at = 0;
        if (!is_blank(next_code_point(text, at))) break;
        text.remove_prefix(at);
    }
    while (!text.empty()) {
        std::size_t last = text.size() - 1;
        while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
        std::size_t at = last;
        if (!is_blank(next_code_point(text, at))) break;
        text.remove_suffix(text.size() - last);
    }
    return text;
}

// Makes a piece from the text of a user or of a model, as valid UTF-8.
ChatPiece written(std::string_view text, bool trim) {
    const std::string mended = replace_invalid_utf8(text);
    return {std::string(trim ? trimmed(mended) : std::string_view(mended)), false};
}

void add(std::vector<ChatPiece> &pieces, ChatPiece piece) {
    if (!piece.text.empty()) pieces.push_back(std::move(piece));
}

void add_markup(std::vector<ChatPiece> &pieces, const std::string &text) {
    add(pieces, {text, true});
}

void append(std::vector<ChatPiece> &pieces, std::vector<ChatPiece> more) {
    pieces.insert(pieces.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
}

// Replaces the placeholders in markup by the tokenizer's begin and end tokens.
std::string with_marks(const std::string &markup, const Tokenizer &tokenizer,
                       const std::string &name) {
    std::string text = markup;
    if (text.find("{bos}") != std::string::npos) {
        // fine-tunes of some families have no begin token; for these, Jinja writes nothing
        const auto bos = tokenizer.bos_id();
        text = replaced(std::move(text), "{bos}", bos ? tokenizer.piece(*bos) : std::string_view());
    }
    if (text.find("{eos}") != std::string::npos) {
        const auto eos = tokenizer.eos_id();
        if (!eos)
            throw_error(ErrorKind::usage,
                        "the chat template {} ends turns with the tokenizer's end token, but the "
                        "model's files name no end token; choose another template",
                        name);
        text = replaced(std::move(text), "{eos}", tokenizer.piece(*eos));
    }
    return text;
}

} // namespace

std::string replaced(std::string text, std::string_view what, std::string_view by) {
    for (std::size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + by.size()))
        text.replace(at, what.size(), by);
    return text;
}

std::optional<ChatTemplate> ChatTemplate::by_name(std::string_view name) {
    for (const Named &family : families)
        if (family.name == name) return ChatTemplate(std::string(name), family.make());
    return std::nullopt;
}

std::vector<std::string> ChatTemplate::names() {
    std::vector<std::string> out;
    out.reserve(families.size());
    for (const Named &family : families) out.emplace_back(family.name);
    return out;
}

std::vector<ChatPiece> ChatTemplate::begin(std::optional<std::string_view> system,
                                           std::string_view today) const {
    std::vector<ChatPiece> pieces;
    add_markup(pieces, format_.begin);
    if (!system && format_.default_system) system = *format_.default_system;
    if (format_.system_in_user) add_markup(pieces, format_.user_open);
    if (!system && format_.preamble.empty()) return pieces;
    add_markup(pieces, format_.system_open);
    if (format_.preamble.find("{date}") != std::string::npos) {
        const std::string date = today.empty() ? this_day() : std::string(today);
        add(pieces, {replaced(format_.preamble, "{date}", date), false});
    } else {
        add(pieces, {format_.preamble, false});
    }
    // inside a user turn, the system prompt is not trimmed separately, because a family with `trim`
    // trims the whole turn
    if (system) add(pieces, written(*system, format_.trim && !format_.system_in_user));
    add_markup(pieces, format_.system_close);
    return pieces;
}

std::vector<ChatPiece> ChatTemplate::user_turn(std::string_view text, bool is_first) const {
    std::vector<ChatPiece> pieces;
    if (!is_first || !format_.system_in_user) add_markup(pieces, format_.user_open);
    add(pieces, written(text, format_.trim));
    add_markup(pieces, format_.user_close);
    add_markup(pieces, format_.answer_open);
    return pieces;
}

std::vector<ChatPiece> ChatTemplate::answer(std::string_view text) const {
    std::vector<ChatPiece> pieces;
    add_markup(pieces, format_.answer_lead);
    add(pieces, written(text, format_.trim_answer));
    return pieces;
}

std::vector<ChatPiece> ChatTemplate::end_of_answer() const {
    std::vector<ChatPiece> pieces;
    add_markup(pieces, format_.answer_close);
    return pieces;
}

std::vector<ChatPiece> ChatTemplate::conversation(std::span<const ChatMessage> messages,
                                                  std::string_view today) const {
    const bool has_system = !messages.empty() && messages.front().role == ChatRole::system;
    std::vector<ChatPiece> pieces =
        begin(has_system ? std::optional<std::string_view>(messages.front().content) : std::nullopt,
              today);
    const auto turns = messages.subspan(has_system ? 1 : 0);
    for (std::size_t i = 0; i < turns.size(); ++i) {
        if (turns[i].role != (i % 2 == 0 ? ChatRole::user : ChatRole::assistant))
            throw_error(
                ErrorKind::input,
                "message {} of the conversation: expected the role {}, found another role; a "
                "conversation is an optional system prompt, then user and assistant in turn",
                i + (has_system ? 2 : 1), i % 2 == 0 ? "user" : "assistant");
        if (turns[i].role == ChatRole::user) {
            append(pieces, user_turn(turns[i].content, i == 0));
        } else {
            append(pieces, answer(turns[i].content));
            append(pieces, end_of_answer());
        }
    }
    return pieces;
}

std::string ChatTemplate::text(const Tokenizer &tokenizer,
                               std::span<const ChatPiece> pieces) const {
    std::string all;
    for (const ChatPiece &piece : pieces) {
        const bool has_marks = piece.is_markup && !jinja_; // placeholders of a named format
        all += has_marks ? with_marks(piece.text, tokenizer, name_) : piece.text;
    }
    return all;
}

std::vector<std::int32_t> ChatTemplate::encode(const Tokenizer &tokenizer,
                                               std::span<const ChatPiece> pieces,
                                               bool continues) const {
    std::vector<std::string> texts;
    texts.reserve(pieces.size());
    std::vector<TextPart> parts;
    for (const ChatPiece &piece : pieces) {
        texts.push_back(text(tokenizer, std::span(&piece, 1)));
        parts.push_back({texts.back(), piece.is_markup});
    }
    return tokenizer.encode(parts, {.add_special = false, .continues = continues});
}

} // namespace keel
