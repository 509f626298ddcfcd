#include "config/yaml_text.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <yaml-cpp/mark.h>

#include <algorithm>

namespace keel::pipeline {
namespace {

// Returns the length in bytes of the well-formed UTF-8 character at the front of `s`, or 0 if `s`
// does not begin with one (Unicode, table 3-7).
size_t character_length(std::string_view s) {
    const auto byte = [&](size_t i) {
        return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u;
    };
    const auto tail = [&](size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
    const unsigned lead = byte(0);
    const unsigned second = byte(1);
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4 || !tail(1)) return 0;
    if (lead < 0xE0) return 2;
    if (lead < 0xF0) {
        if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F)) return 0;
        return tail(2) ? 3 : 0;
    }
    if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) return 0;
    return tail(2) && tail(3) ? 4 : 0;
}

bool is_control(std::string_view character) {
    const auto c = static_cast<unsigned char>(character[0]);
    if (c == '\t' || c == '\n') return false;
    // C1 controls except NEL (U+0085), which YAML allows as an ordinary character
    const bool c1 =
        c == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0 && character != "\xC2\x85";
    return c < 0x20 || c == 0x7F || c1;
}

} // namespace

YamlText::YamlText(std::string_view text, const YamlSource &source, size_t limit)
    : text_(text), source_(source) {
    if (text_.size() > limit) {
        throw_error(ErrorKind::input, "{}: expected at most {} of YAML, found {}", source.name,
                    format_bytes(limit), format_bytes(text_.size()));
    }
    if (text_.starts_with("\xFF\xFE") || text_.starts_with("\xFE\xFF")) {
        throw_at(location(1, 1), ErrorKind::input,
                 "expected UTF-8 text, found UTF-16; save the file as UTF-8");
    }
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
    lines_.push_back(0);
    for (size_t i = 0; i < text_.size(); ++i) {
        if (text_[i] == '\n') lines_.push_back(i + 1);
    }
    check_bytes();
}

void YamlText::check_bytes() const {
    const auto refuse = [&](size_t at, std::string_view found) {
        const auto line = static_cast<size_t>(std::upper_bound(lines_.begin(), lines_.end(), at) -
                                              lines_.begin()) -
                          1;
        const auto [row, column] = place(line, at - lines_[line]);
        throw_at(location(row, column), ErrorKind::input, "expected UTF-8 text, found {}", found);
    };
    for (size_t at = 0; at < text_.size();) {
        const size_t length = character_length(text_.substr(at));
        if (length == 0)
            refuse(at, fmt::format("the byte 0x{:02x}", static_cast<unsigned char>(text_[at])));
        if (text_[at] == '\r') {
            if (at + 1 == text_.size() || text_[at + 1] != '\n')
                refuse(at, "a carriage return without a line feed");
        } else if (is_control(text_.substr(at, length))) {
            refuse(at,
                   fmt::format("the control character {}", printable(text_.substr(at, length))));
        }
        at += length;
    }
}

std::pair<uint32_t, uint32_t> YamlText::place(size_t line, size_t byte) const {
    line = std::min(line, lines_.size() - 1);
    const std::string_view before = text_.substr(lines_[line]).substr(0, byte);
    const auto characters = std::count_if(before.begin(), before.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u;
    });
    return {static_cast<uint32_t>(line) + 1, static_cast<uint32_t>(characters) + 1};
}

std::pair<uint32_t, uint32_t> YamlText::place(const YAML::Mark &mark) const {
    if (mark.is_null() || mark.line < 0 || mark.column < 0) return {0, 0};
    return place(static_cast<size_t>(mark.line), static_cast<size_t>(mark.column));
}

std::string_view YamlText::line(uint32_t number) const {
    if (number == 0 || number > lines_.size()) return {};
    const std::string_view rest = text_.substr(lines_[number - 1]);
    return rest.substr(0, rest.find('\n'));
}

SourceLocation YamlText::location(uint32_t line, uint32_t column) const {
    if (source_.is_override) return {source_.name, 0, 0};
    return {source_.name, line, column};
}

} // namespace keel::pipeline
