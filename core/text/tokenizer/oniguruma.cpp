// Translates patterns of Oniguruma (Ruby syntax) to PCRE2: see SplitRegex.
#include "base/error.hpp"
#include "text/tokenizer/split_regex.hpp"

#include <algorithm>

namespace keel {

namespace {

// The set White_Space. It is used in place of PCRE2's \s, which also has U+180E.
constexpr std::string_view space_set =
    R"(\x{09}-\x{0D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F})"
    R"(\x{205F}\x{3000})";
constexpr std::string_view not_space_set =
    R"(\x{00}-\x{08}\x{0E}-\x{1F}\x{21}-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF})"
    R"(\x{200B}-\x{2027}\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
// Oniguruma's \w is Alphabetic, M, Nd and Pc. PCRE2's \w is L, N and the underscore.
constexpr std::string_view word_set =
    R"(\p{L}\p{Nl}\p{M}\p{Nd}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169})"
    R"(\x{1F170}-\x{1F189})";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

class Translator {
  public:
    Translator(std::string_view pattern, std::string_view place) : in_(pattern), place_(place) {}

    std::string run() {
        while (at_ < in_.size()) {
            const char c = in_[at_];
            if (c == '\\') {
                escape(false);
            } else if (c == '[') {
                character_class();
            } else if (c == '(') {
                group();
            } else if (c == '{') {
                braces();
            } else {
                out_ += c;
                ++at_;
            }
        }
        return std::move(out_);
    }

  private:
    [[noreturn]] void refuse(std::string_view what) const {
        throw_error(ErrorKind::input,
                    "{}: {} at byte {} of the pattern is not supported by Keel's tokenizer", place_,
                    what, at_);
    }

    char peek(std::size_t ahead) const {
        return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0';
    }
    bool follows(std::string_view text) const { return in_.substr(at_).starts_with(text); }

    void copy(std::size_t count) {
        out_ += in_.substr(at_, count);
        at_ += count;
    }
    void put(std::string_view text, std::size_t consumed) {
        out_ += text;
        at_ += consumed;
    }
    // writes \s and similar sets: as a class, or as members of the current class
    void put_set(std::string_view set, bool in_class, bool negated = false) {
        if (!in_class) out_ += negated ? "[^" : "[";
        out_ += set;
        if (!in_class) out_ += ']';
        at_ += 2;
        if (in_class && peek(0) == '-' && peek(1) != ']')
            put("\\-", 1); // the last member of the set must not begin a range
    }

    void escape(bool in_class) {
        const char c = peek(1);
        switch (c) {
        case '\0': refuse("a backslash or NUL");
        case 's': return put_set(space_set, in_class);
        case 'S': return in_class ? put_set(not_space_set, true) : put_set(space_set, false, true);
        case 'w': return put_set(word_set, in_class);
        case 'W':
            if (in_class) refuse("\\W in a class");
            return put_set(word_set, false, true);
        case 'd': return put("\\p{Nd}", 2);
        case 'D': return put("\\P{Nd}", 2);
        case 'v': return put("\\x{0B}", 2);
        case 'b':
        case 'B':
            if (in_class) refuse("\\b in a class");
            return word_boundary(c == 'B');
        case 'p':
        case 'P': return property();
        case 'x': return hexadecimal();
        case 'u': return four_digits();
        case 'A':
        case 'z':
        case 'Z':
            if (in_class) refuse("an anchor in a class");
            return copy(2);
        case 'n':
        case 'r':
        case 't':
        case 'f':
        case 'a':
        case 'e': return copy(2);
        default:
            if (is_letter(c) || is_digit(c)) refuse(fmt::format("the escape \\{}", c));
            if (static_cast<unsigned char>(c) >= 0x80) {
                ++at_; // an escaped character outside of ASCII means the character
                return;
            }
            copy(2);
        }
    }

    void word_boundary(bool negated) {
        const std::string w = fmt::format("[{}]", word_set);
        if (negated)
            out_ += fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", w);
        else
            out_ += fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", w);
        at_ += 2;
    }

    void property() {
        const std::size_t close = in_.find('}', at_);
        if (peek(2) != '{' || close == std::string_view::npos) refuse("\\p without {...}");
        copy(close + 1 - at_);
    }

    void hexadecimal() {
        if (peek(2) == '{') {
            const std::size_t close = in_.find('}', at_);
            if (close == std::string_view::npos) refuse("\\x{ without }");
            return copy(close + 1 - at_);
        }
        std::size_t digits = 0;
        while (digits < 2 && is_hex(peek(2 + digits))) ++digits;
        if (digits == 0) refuse("\\x without digits");
        // \xHH above 7F means a byte of UTF-8 in Oniguruma and a code point in PCRE2
        if (digits == 2 && peek(2) >= '8') refuse("\\x80 and above without braces");
        copy(2 + digits);
    }

    void four_digits() {
        for (std::size_t k = 2; k < 6; ++k)
            if (!is_hex(peek(k))) refuse("\\u without four hexadecimal digits");
        put(fmt::format("\\x{{{}}}", in_.substr(at_ + 2, 4)), 6);
    }

    void character_class() {
        const std::size_t begin = at_;
        copy(1);
        if (peek(0) == '^') copy(1);
        if (peek(0) == ']') put("\\]", 1);
        while (peek(0) != ']') {
            if (at_ >= in_.size()) {
                at_ = begin;
                refuse("a class that is not closed");
            }
            if (peek(0) == '[') refuse("a class or POSIX bracket inside a class");
            if (follows("&&")) refuse("&& in a class");
            if (peek(0) == '\\')
                escape(true);
            else
                copy(1);
        }
        copy(1);
    }

    void group() {
        if (peek(1) == '*') refuse("(*");
        if (peek(1) != '?') return copy(1);
        for (const std::string_view plain : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"})
            if (follows(plain)) return copy(plain.size());
        // Accepted are (?i: ...) and (?-i: ...), and (?i) at the start of the pattern. At other
        // places, (?i) has another scope in Oniguruma.
        std::size_t k = 2;
        if (peek(k) == '-') ++k;
        if (peek(k) == 'i' && (peek(k + 1) == ':' || (peek(k + 1) == ')' && at_ == 0)))
            return copy(k + 2);
        refuse("this kind of group");
    }

    // {n}, {n,}, {n,m}, {,m}; any other brace is a literal
    void braces() {
        std::size_t k = 1;
        while (is_digit(peek(k))) ++k;
        const bool has_min = k > 1;
        const bool comma = peek(k) == ',';
        bool has_max = false;
        if (comma) {
            ++k;
            for (; is_digit(peek(k)); ++k) has_max = true;
        }
        if (peek(k) != '}' || (!has_min && !has_max)) return put("\\{", 1);
        const char next = peek(k + 1);
        if (next == '+' || (next == '?' && !comma)) refuse("{...}+ or {n}?");
        if (!has_min) {
            put("{0", 1);
            --k;
        }
        copy(k + 1);
    }

    std::string_view in_;
    std::string_view place_;
    std::string out_;
    std::size_t at_ = 0;
};

} // namespace

std::string oniguruma_to_pcre2(std::string_view pattern, std::string_view place) {
    return Translator(pattern, place).run();
}

} // namespace keel
