#include "text/utf8.hpp"

namespace keel {

bool Utf8Stream::begin_sequence(unsigned char lead) noexcept {
    low_ = 0x80;
    high_ = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
        needed_ = 1;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        needed_ = 2;
        if (lead == 0xE0) low_ = 0xA0;  // lower values: overlong
        if (lead == 0xED) high_ = 0x9F; // higher values: surrogates
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        needed_ = 3;
        if (lead == 0xF0) low_ = 0x90;  // lower values: overlong
        if (lead == 0xF4) high_ = 0x8F; // higher values: above U+10FFFF
    } else {
        return false;
    }
    held_[0] = static_cast<char>(lead);
    count_ = 1;
    return true;
}

void Utf8Stream::push(std::string_view bytes, std::string &out) {
    for (const char byte : bytes) {
        const auto b = static_cast<unsigned char>(byte);
        if (needed_ > 0) {
            if (b >= low_ && b <= high_) {
                held_[count_++] = byte;
                low_ = 0x80;
                high_ = 0xBF;
                if (--needed_ == 0) out.append(held_.data(), count_);
                continue;
            }
            // the sequence ends before this byte; the byte can begin another sequence
            out += utf8_replacement;
            needed_ = 0;
        }
        if (b < 0x80) {
            out.push_back(byte);
        } else if (!begin_sequence(b)) {
            out += utf8_replacement;
        }
    }
}

void Utf8Stream::finish(std::string &out) {
    if (needed_ > 0) out += utf8_replacement;
    needed_ = 0;
}

namespace {

// Returns the offset of the first byte that is not part of a well-formed character, or size() if
// there is no such byte.
std::size_t valid_prefix(std::string_view bytes) noexcept {
    std::size_t i = 0;
    while (i < bytes.size()) {
        const auto b = static_cast<unsigned char>(bytes[i]);
        if (b < 0x80) {
            ++i;
            continue;
        }
        const auto in = [&](std::size_t k, unsigned char low, unsigned char high) {
            if (i + k >= bytes.size()) return false;
            const auto c = static_cast<unsigned char>(bytes[i + k]);
            return c >= low && c <= high;
        };
        if (b >= 0xC2 && b <= 0xDF && in(1, 0x80, 0xBF)) {
            i += 2;
        } else if (b >= 0xE0 && b <= 0xEF &&
                   in(1, b == 0xE0 ? 0xA0 : 0x80, b == 0xED ? 0x9F : 0xBF) && in(2, 0x80, 0xBF)) {
            i += 3;
        } else if (b >= 0xF0 && b <= 0xF4 &&
                   in(1, b == 0xF0 ? 0x90 : 0x80, b == 0xF4 ? 0x8F : 0xBF) && in(2, 0x80, 0xBF) &&
                   in(3, 0x80, 0xBF)) {
            i += 4;
        } else {
            return i;
        }
    }
    return i;
}

} // namespace

bool is_valid_utf8(std::string_view bytes) noexcept { return valid_prefix(bytes) == bytes.size(); }

std::string replace_invalid_utf8(std::string_view bytes) {
    const std::size_t good = valid_prefix(bytes);
    std::string out(bytes.substr(0, good));
    if (good < bytes.size()) {
        Utf8Stream stream;
        stream.push(bytes.substr(good), out);
        stream.finish(out);
    }
    return out;
}

void append_utf8(std::string &out, char32_t c) {
    const auto put = [&](char32_t byte) {
        out.push_back(static_cast<char>(static_cast<unsigned char>(byte)));
    };
    if (c < 0x80) {
        put(c);
    } else if (c < 0x800) {
        put(0xC0 | (c >> 6));
        put(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        put(0xE0 | (c >> 12));
        put(0x80 | ((c >> 6) & 0x3F));
        put(0x80 | (c & 0x3F));
    } else {
        put(0xF0 | (c >> 18));
        put(0x80 | ((c >> 12) & 0x3F));
        put(0x80 | ((c >> 6) & 0x3F));
        put(0x80 | (c & 0x3F));
    }
}

char32_t next_code_point(std::string_view text, std::size_t &offset) noexcept {
    const std::size_t length = utf8_length(text, offset);
    const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[offset + k]); };
    char32_t c = length == 1 ? byte(0) : byte(0) & (0xFFU >> (length + 1));
    for (std::size_t k = 1; k < length; ++k) c = (c << 6) | (byte(k) & 0x3F);
    offset += length;
    return c;
}

bool is_unicode_space(char32_t c) noexcept {
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

} // namespace keel
