// Recognizes a template from the Jinja text in a model's files. The text is never run. It is
// converted to a canonical form, which is searched for the expressions that write a turn. A
// template that writes its turns with other expressions is not recognized.
#include "text/chat_template.hpp"

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "format/gguf.hpp"
#include "text/text_file.hpp"
#include "text/utf8.hpp"

#include <algorithm>

namespace keel {

namespace {

constexpr std::size_t max_jinja_bytes = 1 << 20;

// In a canonical text, strings are between these characters, for either kind of quotes in the Jinja
// text.
constexpr char quote = '\x01';

// A search pattern. In `text`, ' is written for the quote characters.
std::string pattern(std::string_view text) {
    std::string out(text);
    std::replace(out.begin(), out.end(), '\'', quote);
    return out;
}

// The value of a character after a backslash in a Jinja string.
char unescaped(char c) { return c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c; }

// Returns true if the text after a {{ }} begins with a line break that the output keeps, because
// the next tag does not strip it.
bool keeps_newline(std::string_view jinja, std::size_t at) {
    if (at >= jinja.size() || jinja[at] != '\n') return false;
    const std::size_t tag = jinja.find_first_not_of(" \t\r\n", at);
    return tag == std::string_view::npos || tag + 2 >= jinja.size() || jinja[tag] != '{' ||
           jinja[tag + 2] != '-';
}

// The code of a Jinja text (the content of {{ }} and {% %}) in canonical form: without white space
// outside of strings, with one kind of quotes, escapes resolved, and message.role written as
// message['role']. A line break right after a {{ }} is kept.
std::string canonical(std::string_view jinja) {
    std::string out;
    bool in_code = false;
    for (std::size_t i = 0; i < jinja.size(); ++i) {
        const char c = jinja[i];
        const char next = i + 1 < jinja.size() ? jinja[i + 1] : '\0';
        if (!in_code) {
            if (c == '{' && next == '#') {
                const std::size_t end = jinja.find("#}", i + 2);
                if (end == std::string_view::npos) break;
                i = end + 1;
            } else if (c == '{' && (next == '{' || next == '%')) {
                in_code = true;
                ++i;
                if (i + 1 < jinja.size() && (jinja[i + 1] == '-' || jinja[i + 1] == '+')) ++i;
                out += ' '; // separates expressions
            }
            continue;
        }
        if (c == '\'' || c == '"') {
            out += quote;
            for (++i; i < jinja.size() && jinja[i] != c; ++i) {
                if (jinja[i] == '\\' && i + 1 < jinja.size())
                    out += unescaped(jinja[++i]);
                else if (jinja[i] != quote)
                    out += jinja[i];
            }
            out += quote;
        } else if ((c == '}' && next == '}') || (c == '%' && next == '}')) {
            in_code = false;
            ++i;
            if (c == '}' && jinja[i - 2] != '-' && keeps_newline(jinja, i + 1)) out += '\n';
        } else if (c != ' ' && c != '\n' && c != '\t' && c != '\r' && c != quote) {
            out += c;
        }
    }
    out = replaced(std::move(out), "message.role", pattern("message['role']"));
    out = replaced(std::move(out), "message.content", pattern("message['content']"));
    out = replaced(std::move(out), "messages[0].content", pattern("messages[0]['content']"));
    out = replaced(std::move(out), pattern("['content'].strip()"), pattern("['content']|trim"));
    return replaced(std::move(out), "content.strip()", "content|trim");
}

class JinjaText {
  public:
    explicit JinjaText(std::string_view jinja) : text_(canonical(jinja)) {}

    bool has(std::string_view what) const { return text_.find(pattern(what)) != std::string::npos; }

    // The text between `opening` and `closing` in the first string that begins and ends with them
    // and is longer than both together.
    std::optional<std::string> literal(std::string_view opening, std::string_view closing) const {
        const std::string begin = quote + std::string(opening);
        for (std::size_t at = text_.find(begin); at != std::string::npos;
             at = text_.find(begin, at + 1)) {
            const std::size_t from = at + begin.size();
            const std::size_t end = text_.find(quote, from);
            if (end == std::string::npos) break;
            const std::string_view rest = std::string_view(text_).substr(from, end - from);
            if (rest.size() > closing.size() && rest.ends_with(closing))
                return std::string(rest.substr(0, rest.size() - closing.size()));
        }
        return std::nullopt;
    }

    // The values that {% set name = ... %} assigns to a name, one for each place. Strings have
    // their quotes.
    std::vector<std::string> assigned(std::string_view name) const {
        const std::string begin = fmt::format("set{}=", name);
        std::vector<std::string> values;
        for (std::size_t at = text_.find(begin); at != std::string::npos;
             at = text_.find(begin, at)) {
            at += begin.size();
            std::size_t end = at;
            for (bool in_string = false; end < text_.size() && (in_string || text_[end] != ' ');
                 ++end)
                if (text_[end] == quote) in_string = !in_string;
            values.push_back(text_.substr(at, end - at));
            at = end;
        }
        return values;
    }

  private:
    std::string text_;
};

// Returns the text of a value if the value is a single string.
std::optional<std::string> string_of(const std::string &value) {
    if (value.size() < 2 || value.front() != quote || value.find(quote, 1) != value.size() - 1)
        return std::nullopt;
    return value.substr(1, value.size() - 2);
}

ChatTemplate named(std::string_view name) { return *ChatTemplate::by_name(name); }

// The date that a template uses if the caller gives none: "26 Jul 2024" in Meta's files, "26 July
// 2024" in many others.
std::optional<std::string> literal_date(const JinjaText &text) {
    constexpr std::size_t longest = 40;
    const std::vector<std::string> values = text.assigned("date_string");
    if (values.empty() ||
        std::count(values.begin(), values.end(), values.front()) != std::ssize(values))
        return std::nullopt;
    const std::optional<std::string> date = string_of(values.front());
    if (!date || date->empty() || date->size() > longest || replace_invalid_utf8(*date) != *date)
        return std::nullopt;
    // a character that Keel or a model could read as part of a mark
    const auto is_no_date = [](char c) {
        return (c >= 0 && c < ' ') || std::string_view("<>{}|[]").find(c) != std::string_view::npos;
    };
    if (std::any_of(date->begin(), date->end(), is_no_date)) return std::nullopt;
    return date;
}

bool is_space(char c) { return std::string_view(" \t\r\n\v\f").find(c) != std::string_view::npos; }

// Reads how Llama 3.1 and later use the given system prompt, and their default. Returns false if
// the text does anything else with it, or trims the system prompt differently from the turns.
bool read_llama3_system(const JinjaText &text, ChatTemplate::Format &format) {
    const std::string given = pattern("messages[0]['content']");
    bool found = false;
    for (const std::string &value : text.assigned("system_message")) {
        if (const auto literal = string_of(value)) {
            if (literal->empty()) continue;
            if (format.default_system && *format.default_system != *literal) return false;
            if (format.trim && (is_space(literal->front()) || is_space(literal->back())))
                return false;
            format.default_system = *literal;
        } else {
            if (value != (format.trim ? given + "|trim" : given)) return false;
            found = true;
        }
    }
    return found;
}

std::optional<ChatTemplate> as_llama3(const JinjaText &text) {
    const std::string turn =
        "'<|start_header_id|>'+message['role']+'<|end_header_id|>\n\n'+message['content']";
    const bool trims = text.has(turn + "|trim+'<|eot_id|>'");
    if (!trims && !text.has(turn + "+'<|eot_id|>'")) return std::nullopt;
    const bool is_dated = text.has("'Cutting Knowledge Date: December 2023\n'");
    ChatTemplate::Format format = named(is_dated ? "llama3.2" : "llama3").format();
    format.trim = format.trim_answer = trims;
    if (!is_dated) {
        // the first form of the template writes no system turn of its own
        if (text.has("<|start_header_id|>system<|end_header_id|>")) return std::nullopt;
        return ChatTemplate("llama3", std::move(format));
    }
    if (!text.has("'Today Date: '+date_string+'\n\n'") || !read_llama3_system(text, format))
        return std::nullopt;
    if (text.has("strftime_now")) return ChatTemplate("llama3.2", std::move(format));
    const std::optional<std::string> date = literal_date(text);
    if (!date) return std::nullopt;
    format.preamble = replaced(std::move(format.preamble), "{date}", *date);
    return ChatTemplate("llama3.1", std::move(format));
}

std::optional<ChatTemplate> as_chatml(const JinjaText &text) {
    ChatTemplate::Format format = named("chatml").format();
    const std::string begin = "'<|im_start|>'+message['role']+'\n'+";
    bool found = false;
    // the last form is Qwen3's, which first removes the thoughts from earlier answers
    for (const char *content : {"message['content']", "message['content']|trim", "content"})
        for (const char *end : {"+'<|im_end|>'+'\n'", "+'<|im_end|>\n'"})
            if (text.has(begin + content + end)) {
                found = true;
                format.trim = format.trim_answer = std::string_view(content).ends_with("|trim");
            }
    // a system prompt that is built from several texts is not supported
    if (!found || !text.has("'<|im_start|>assistant\n'") || text.has("system_message='"))
        return std::nullopt;
    if (text.has("bos_token")) format.begin = "{bos}";
    format.default_system = text.literal("<|im_start|>system\n", "<|im_end|>\n");
    if (!format.default_system && text.literal("<|im_start|>system\n", "")) return std::nullopt;
    // an expression that starts a system turn without its text writes the list of tools; it must be
    // inside a condition on tools
    if (text.has(" '<|im_start|>system\n' ") && !text.has(" iftools")) return std::nullopt;
    return ChatTemplate("chatml", std::move(format));
}

std::optional<ChatTemplate> as_llama2(const JinjaText &text) {
    if (!text.has("bos_token+'[INST] '+content|trim+' [/INST]'") ||
        !text.has("' '+content|trim+' '+eos_token") ||
        !text.has("'<<SYS>>\n'+system_message+'\n<</SYS>>\n\n'+message['content']") ||
        text.has("true==true"))
        return std::nullopt;
    return named("llama2");
}

// Mistral's files write the same turns with spaces in different places. The places are read from
// the text.
std::optional<ChatTemplate> as_mistral(const JinjaText &text) {
    if (text.has("[SYSTEM_PROMPT]") || text.has("bos_token+'[INST]") || !text.has("bos_token"))
        return std::nullopt;
    ChatTemplate::Format format = named("mistral-v3").format();
    bool found = false;
    for (const char *open : {" [INST] ", "[INST] ", "[INST]"})
        for (const char *close : {" [/INST]", "[/INST]"})
            if (!found && text.has(fmt::format("'{}'+message['content']+'{}'", open, close))) {
                found = true;
                format.user_open = open;
                format.user_close = close;
            }
    if (!found) return std::nullopt;
    format.trim_answer = text.has("message['content']|trim+eos_token");
    if (!format.trim_answer && !text.has("message['content']+eos_token")) return std::nullopt;
    const std::string answer =
        format.trim_answer ? "message['content']|trim+eos_token" : "message['content']+eos_token";
    format.answer_lead = text.has("' '+" + answer) ? " " : "";
    if (text.has(answer + "+' '")) format.answer_close = "{eos} ";
    for (const char *name : {"mistral-v1", "mistral-v3", "mistral-tekken"})
        if (named(name).format() == format) return named(name);
    return ChatTemplate("mistral", std::move(format));
}

std::optional<ChatTemplate> as_zephyr(const JinjaText &text) {
    for (const char *role : {"user", "system", "assistant"}) {
        const std::string turn = fmt::format("'<|{}|>\n'+message['content']+eos_token", role);
        if (!text.has(turn + "\n") && !text.has(turn + "+'\n'")) return std::nullopt;
    }
    if (!text.has("'<|assistant|>'\n") && !text.has(" '<|assistant|>\n'")) return std::nullopt;
    ChatTemplate::Format format = named("zephyr").format();
    if (text.has("bos_token")) format.begin = "{bos}";
    return ChatTemplate("zephyr", std::move(format));
}

std::optional<ChatTemplate> as_gemma(const JinjaText &text) {
    const std::string begin = "'<start_of_turn>'+role+'\n'+";
    const bool second = text.has(begin + "message['content']|trim+'<end_of_turn>\n'");
    const bool third = text.has(begin + "(first_user_prefixifloop.firstelse'')") &&
                       text.has(" message['content']|trim") && text.has(" '<end_of_turn>\n'");
    if ((!second && !third) || !text.has("'<start_of_turn>model\n'")) return std::nullopt;
    ChatTemplate::Format format = named("gemma").format();
    if (!text.has("bos_token")) format.begin.clear();
    return ChatTemplate("gemma", std::move(format));
}

} // namespace

std::optional<ChatTemplate> ChatTemplate::recognize(std::string_view jinja) {
    if (jinja.empty() || jinja.size() > max_jinja_bytes) return std::nullopt;
    const JinjaText text(jinja);
    if (text.has("<|start_header_id|>")) return as_llama3(text);
    if (text.has("<|im_start|>")) return as_chatml(text);
    if (text.has("<<SYS>>")) return as_llama2(text);
    if (text.has("[INST]")) return as_mistral(text);
    if (text.has("<start_of_turn>")) return as_gemma(text);
    if (text.has("<|user|>")) return as_zephyr(text);
    return std::nullopt;
}

FoundChatTemplate find_chat_template(std::string_view chat_template_jinja,
                                     std::string_view tokenizer_config_json,
                                     std::string_view config_name) {
    FoundChatTemplate found;
    if (!chat_template_jinja.empty()) {
        found.jinja = chat_template_jinja;
    } else if (!tokenizer_config_json.empty()) {
        const JsonLimits limits{size_t{128} << 20, 64, 8'000'000, true};
        const JsonDocument config(tokenizer_config_json, std::string(config_name), limits);
        if (const auto node = config.root().find("chat_template")) {
            if (!node->is_array()) {
                found.jinja = node->text();
            } else {
                for (std::size_t i = 0; i < node->size(); ++i)
                    if (node->element(i).at("name").text() == "default")
                        found.jinja = node->element(i).at("template").text();
            }
        }
    }
    found.known = ChatTemplate::recognize(found.jinja);
    return found;
}

FoundChatTemplate find_chat_template(const GgufFile &file) {
    FoundChatTemplate found;
    if (const auto text = file.text("tokenizer.chat_template")) found.jinja = *text;
    found.known = ChatTemplate::recognize(found.jinja);
    return found;
}

FoundChatTemplate load_chat_template(const std::filesystem::path &path) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored) && is_gguf_file(path))
        return find_chat_template(GgufFile(path));
    const auto home = std::filesystem::is_directory(path, ignored) ? path : path.parent_path();
    const auto config = home / "tokenizer_config.json";
    return find_chat_template(read_text_file(home / "chat_template.jinja", false),
                              read_text_file(config, false), config.string());
}

} // namespace keel
