#include "text/jinja/lexer.hpp"

#include "base/display.hpp"
#include "text/utf8.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace keel::jinja {
namespace {

// The symbols, the longest first.
constexpr std::array<std::string_view, 26> symbols{
    "//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
    ">",  "=",  ".",  ":",  "|",  ",",  ";", "(", ")", "[", "]", "{", "}"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           static_cast<unsigned char>(c) >= 0x80;
}

// Python's white space.
bool is_space(char32_t c) { return is_unicode_space(c) || (c >= 0x1C && c <= 0x1F); }

std::string with_one_newline(std::string_view source) {
    std::string out;
    out.reserve(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] != '\r') {
            out += source[i];
        } else if (i + 1 >= source.size() || source[i + 1] != '\n') {
            out += '\n';
        }
    }
    if (out.ends_with('\n')) out.pop_back();
    return out;
}

class Splitter {
  public:
    explicit Splitter(std::string_view source) : source_(with_one_newline(source)) {}

    std::vector<LexToken> split() {
        while (at_ < source_.size()) {
            const std::size_t tag = next_tag();
            if (tag == std::string::npos) {
                add_text(std::string_view(source_).substr(at_));
                at_ = source_.size();
                break;
            }
            const char kind = source_[tag + 1];
            const char sign = sign_at(tag + 2);
            text_before(tag, kind, sign);
            at_ = tag + 2 + (sign != 0 ? 1 : 0);
            if (kind == '#') {
                comment();
            } else if (kind == '{') {
                add(TokenType::output_begin, "{{");
                code('}');
            } else if (!raw()) {
                add(TokenType::block_begin, "{%");
                code('%');
            }
        }
        add(TokenType::end, "");
        return std::move(tokens_);
    }

  private:
    [[noreturn]] void refuse(const std::string &text) const { throw LineFailure(line_, text); }

    void add(TokenType type, std::string text) {
        tokens_.push_back({type, std::move(text), line_});
    }
    void add_text(std::string_view text) {
        if (!text.empty()) add(TokenType::data, std::string(text));
        line_ += static_cast<std::uint32_t>(std::count(text.begin(), text.end(), '\n'));
    }
    // Moves to `to`, and counts the lines on the way.
    void move_to(std::size_t to) {
        line_ += static_cast<std::uint32_t>(
            std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                       source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
        at_ = to;
    }

    std::size_t next_tag() const {
        for (std::size_t at = source_.find('{', at_); at != std::string::npos;
             at = source_.find('{', at + 1))
            if (at + 1 < source_.size() &&
                (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#'))
                return at;
        return std::string::npos;
    }
    char sign_at(std::size_t at) const {
        return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at]
                                                                                 : '\0';
    }

    // Adds the text between the last tag and the tag at `tag`.
    void text_before(std::size_t tag, char kind, char sign) {
        const std::string_view whole = std::string_view(source_).substr(at_, tag - at_);
        std::string_view text = whole;
        if (sign == '-') {
            while (!text.empty()) {
                std::size_t last = text.size() - 1;
                while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
                std::size_t from = last;
                if (!is_space(next_code_point(text, from))) break;
                text.remove_suffix(text.size() - last);
            }
        } else if (sign != '+' && kind != '{') {
            const std::size_t line = text.rfind('\n') + 1; // 0 if there is no line break
            const bool starts_line = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
            if (starts_line && is_blank(text.substr(line))) text = text.substr(0, line);
        }
        add_text(text);
        line_ += static_cast<std::uint32_t>(
            std::count(whole.begin() + std::ssize(text), whole.end(), '\n'));
    }
    static bool is_blank(std::string_view text) {
        for (std::size_t at = 0; at < text.size();)
            if (!is_space(next_code_point(text, at))) return false;
        return true;
    }

    // Moves to the end of a closing mark of `bytes` bytes, and removes the white space after it.
    void close(std::size_t mark, std::size_t bytes, char sign, bool trims_line) {
        std::size_t to = mark + bytes;
        if (sign == '-') {
            for (std::size_t next = to; next < source_.size(); to = next)
                if (!is_space(next_code_point(source_, next))) break;
        } else if (sign != '+' && trims_line && to < source_.size() && source_[to] == '\n') {
            ++to;
        }
        move_to(to);
    }

    void comment() {
        const std::size_t end = source_.find("#}", at_);
        if (end == std::string::npos) refuse("the comment that begins with {# has no end #}");
        const char sign = end > at_ ? sign_at(end - 1) : '\0';
        close(end, 2, sign, true);
    }

    // Reads {% raw %}...{% endraw %}. Returns false if the tag is another one.
    bool raw() {
        const auto word = [&](std::size_t from,
                              std::string_view name) -> std::optional<std::size_t> {
            from = std::min(source_.find_first_not_of(" \t\n", from), source_.size());
            if (source_.compare(from, name.size(), name) != 0) return std::nullopt;
            from = std::min(source_.find_first_not_of(" \t\n", from + name.size()), source_.size());
            const char sign = sign_at(from);
            if (source_.compare(from + (sign != 0 ? 1 : 0), 2, "%}") != 0) return std::nullopt;
            return from;
        };
        const auto opened = word(at_, "raw");
        if (!opened) return false;
        const char open_sign = sign_at(*opened);
        close(*opened + (open_sign != 0 ? 1 : 0), 2, open_sign, false);
        for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
             tag = source_.find("{%", tag + 2)) {
            const char sign = sign_at(tag + 2);
            const auto closed = word(tag + 2 + (sign != 0 ? 1 : 0), "endraw");
            if (!closed) continue;
            text_before(tag, '%', sign);
            at_ = tag;
            const char close_sign = sign_at(*closed);
            close(*closed + (close_sign != 0 ? 1 : 0), 2, close_sign, true);
            return true;
        }
        refuse("{% raw %} has no {% endraw %}");
    }

    // Reads the tokens of a tag. `end` is the first character of the mark that ends it.
    void code(char end) {
        std::string open; // the closing brackets that are expected
        while (at_ < source_.size()) {
            const char c = source_[at_];
            const char sign = c == '-' || (c == '+' && end == '%') ? c : '\0';
            const std::size_t mark = at_ + (sign != 0 ? 1 : 0);
            if (open.empty() && mark + 1 < source_.size() && source_[mark] == end &&
                source_[mark + 1] == '}') {
                add(end == '}' ? TokenType::output_end : TokenType::block_end,
                    end == '}' ? "}}" : "%}");
                return close(mark, 2, sign, end == '%');
            }
            if (c == ' ' || c == '\t' || c == '\n' || c == '\v' || c == '\f') {
                move_to(at_ + 1);
            } else if (c == '\'' || c == '"') {
                string(c);
            } else if (is_digit(c)) {
                number();
            } else if (is_name_start(c)) {
                std::size_t to = at_;
                while (to < source_.size() && (is_name_start(source_[to]) || is_digit(source_[to])))
                    ++to;
                add(TokenType::name, source_.substr(at_, to - at_));
                at_ = to;
            } else {
                symbol(open);
            }
        }
        refuse(fmt::format("a tag has no end; expected {}}}", end));
    }

    void symbol(std::string &open) {
        const std::string_view rest = std::string_view(source_).substr(at_);
        const auto found =
            std::ranges::find_if(symbols, [&](std::string_view s) { return rest.starts_with(s); });
        if (found == symbols.end())
            refuse(fmt::format("unexpected character '{}' in a tag",
                               printable(rest.substr(0, utf8_length(rest, 0)))));
        const char c = found->front();
        if (c == '(') open += ')';
        if (c == '[') open += ']';
        if (c == '{') open += '}';
        if (c == ')' || c == ']' || c == '}') {
            if (open.empty()) refuse(fmt::format("unexpected '{}'", c));
            if (open.back() != c) refuse(fmt::format("expected '{}', found '{}'", open.back(), c));
            open.pop_back();
        }
        add(TokenType::symbol, std::string(*found));
        at_ += found->size();
    }

    void number() {
        std::size_t to = at_;
        std::string digits;
        const auto take = [&](std::string_view allowed) {
            while (to < source_.size() && (allowed.find(source_[to]) != std::string_view::npos))
                if (source_[to++] != '_') digits += source_[to - 1];
        };
        constexpr std::string_view decimal = "0123456789_";
        take(decimal);
        bool is_real = false;
        if (to + 1 < source_.size() && source_[to] == '.' && is_digit(source_[to + 1])) {
            is_real = true;
            digits += '.';
            ++to;
            take(decimal);
        }
        if (to < source_.size() && (source_[to] == 'e' || source_[to] == 'E')) {
            std::size_t power = to + 1;
            if (power < source_.size() && (source_[power] == '+' || source_[power] == '-')) ++power;
            if (power < source_.size() && is_digit(source_[power])) {
                is_real = true;
                digits += source_.substr(to, power - to);
                to = power;
                take(decimal);
            }
        }
        add(is_real ? TokenType::real : TokenType::integer, std::move(digits));
        at_ = to;
    }

    // Reads a string with its escapes, as Python reads them.
    void string(char quote) {
        const std::uint32_t line = line_;
        std::string value;
        std::size_t at = at_ + 1;
        const auto code = [&](std::size_t digits) {
            char32_t number = 0;
            for (std::size_t i = 0; i < digits; ++i, ++at) {
                const char c = at < source_.size() ? source_[at] : '\0';
                const int digit = is_digit(c)            ? c - '0'
                                  : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                         : -1;
                if (digit < 0) refuse("a string has an incomplete escape \\x, \\u or \\U");
                number = number * 16 + static_cast<char32_t>(digit);
            }
            if (number > 0x10FFFF || (number >= 0xD800 && number <= 0xDFFF))
                refuse("a string has an escape that is not a Unicode character");
            append_utf8(value, number);
        };
        while (at < source_.size() && source_[at] != quote) {
            if (source_[at] != '\\' || at + 1 >= source_.size()) {
                value += source_[at++];
                continue;
            }
            const char c = source_[at + 1];
            at += 2;
            constexpr std::string_view names = "abfnrtv\\'\"", values = "\a\b\f\n\r\t\v\\'\"";
            if (const std::size_t place = names.find(c); place != std::string_view::npos) {
                value += values[place];
            } else if (c == 'x' || c == 'u' || c == 'U') {
                code(c == 'x' ? 2 : c == 'u' ? 4 : 8);
            } else if (c >= '0' && c <= '7') {
                char32_t number = static_cast<char32_t>(c - '0');
                for (int i = 0;
                     i < 2 && at < source_.size() && source_[at] >= '0' && source_[at] <= '7'; ++i)
                    number = number * 8 + static_cast<char32_t>(source_[at++] - '0');
                append_utf8(value, number);
            } else if (c != '\n') { // an unknown escape stays as it is
                value += '\\';
                value += c;
            }
        }
        if (at >= source_.size()) refuse("a string has no closing quote");
        move_to(at + 1);
        tokens_.push_back({TokenType::string, std::move(value), line});
    }

    std::string source_;
    std::size_t at_ = 0;
    std::uint32_t line_ = 1;
    std::vector<LexToken> tokens_;
};

} // namespace

std::vector<LexToken> split_template(std::string_view source) { return Splitter(source).split(); }

} // namespace keel::jinja
