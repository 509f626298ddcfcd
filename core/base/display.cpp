#include "base/display.hpp"

#include <array>
#include <fmt/format.h>

namespace keel {
namespace {

// Returns the length of the well-formed UTF-8 sequence at the front of `s`, or 0 if `s` does not
// begin with one. Overlong forms and surrogates are not well-formed.
size_t utf8_length(std::string_view s) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
    const auto tail = [&](size_t i) { return i < s.size() && (byte(i) & 0xC0u) == 0x80u; };
    const unsigned lead = byte(0);
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
    if (lead >= 0xE0 && lead <= 0xEF) {
        if (!tail(1) || !tail(2)) return 0;
        if (lead == 0xE0 && byte(1) < 0xA0) return 0;
        if (lead == 0xED && byte(1) > 0x9F) return 0;
        return 3;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        if (!tail(1) || !tail(2) || !tail(3)) return 0;
        if (lead == 0xF0 && byte(1) < 0x90) return 0;
        if (lead == 0xF4 && byte(1) > 0x8F) return 0;
        return 4;
    }
    return 0;
}

// Some terminals also interpret C1 controls (U+0080..U+009F) as escape sequences.
bool is_control(std::string_view sequence) {
    const auto c = static_cast<unsigned char>(sequence[0]);
    return c < 0x20 || c == 0x7F || (c == 0xC2 && static_cast<unsigned char>(sequence[1]) < 0xA0);
}

} // namespace

std::string printable(std::string_view text, size_t limit) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        if (out.size() >= limit) return out + "...";
        const size_t length = utf8_length(text.substr(at));
        const std::string_view piece = text.substr(at, length == 0 ? 1 : length);
        if (length == 0 || is_control(piece)) {
            for (const char c : piece)
                out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        } else {
            out += piece;
        }
        at += piece.size();
    }
    return out;
}

std::string quote_text(std::string_view text) { return "'" + printable(text, 60) + "'"; }

std::string format_bytes(uint64_t bytes) {
    constexpr std::array units = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) return fmt::format("{} B", bytes);
    double value = static_cast<double>(bytes) / 1024;
    size_t unit = 0;
    // 1023.95 and more would be printed as 1024.0, so the next unit is used
    while (value >= 1023.95 && unit + 1 < units.size()) {
        value /= 1024;
        ++unit;
    }
    return fmt::format("{:.1f} {}", value, units[unit]);
}

} // namespace keel
