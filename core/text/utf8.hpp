#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace keel {

// U+FFFD REPLACEMENT CHARACTER in UTF-8.
inline constexpr std::string_view utf8_replacement = "\xEF\xBF\xBD";

// Returns true if all bytes are well-formed UTF-8 according to the Unicode standard (table 3-7): no
// overlong forms, no surrogates, nothing above U+10FFFF.
bool is_valid_utf8(std::string_view bytes) noexcept;

// Replaces bytes that are not UTF-8. Keel uses this rule everywhere: each maximal subpart of an
// ill-formed sequence becomes one U+FFFD. A maximal subpart is the longest run of bytes that begins
// a well-formed sequence. If no such run begins at a byte, the maximal subpart is this byte alone.
// Python's bytes.decode("utf-8", errors="replace") and Rust's String::from_utf8_lossy do the same:
//   41 F0 9F 98 42   ->  A U+FFFD B          (a character without its end: one replacement)
//   C0 80            ->  U+FFFD U+FFFD       (an overlong form: no byte begins a sequence)
//   ED A0 80         ->  U+FFFD U+FFFD U+FFFD (a surrogate)
std::string replace_invalid_utf8(std::string_view bytes);

// Works like replace_invalid_utf8() for bytes that come in pieces. If a sequence can still become a
// character, it is held back (at most three bytes). If it cannot, it is replaced at once. The
// joined outputs are equal to replace_invalid_utf8() of the joined inputs, for any way to split the
// input.
class Utf8Stream {
  public:
    void push(std::string_view bytes, std::string &out);
    // Ends the text: an unfinished sequence becomes U+FFFD. After that the stream can be used for
    // another text.
    void finish(std::string &out);
    bool holds_back() const noexcept { return needed_ > 0; }

  private:
    bool begin_sequence(unsigned char lead) noexcept;

    std::array<char, 4> held_{};
    std::uint8_t count_ = 0;  // number of bytes in held_
    std::uint8_t needed_ = 0; // number of continuation bytes that are still missing
    unsigned char low_ = 0;   // the next byte must be in [low_, high_]
    unsigned char high_ = 0;
};

// Returns the number of bytes of the character that begins at `text[offset]`. `text` must be valid
// UTF-8, and `offset` the first byte of a character.
inline std::size_t utf8_length(std::string_view text, std::size_t offset) noexcept {
    const auto lead = static_cast<unsigned char>(text[offset]);
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// Appends the UTF-8 form of a code point (at most U+10FFFF, no surrogate).
void append_utf8(std::string &out, char32_t code_point);

// Reads the character at `offset` of valid UTF-8, and moves `offset` to the end of the character.
char32_t next_code_point(std::string_view text, std::size_t &offset) noexcept;

// Returns true if the code point has Unicode's property White_Space (stable since Unicode 6.3).
bool is_unicode_space(char32_t code_point) noexcept;

} // namespace keel
