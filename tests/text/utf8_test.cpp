#include "text/utf8.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace std::string_literals;

namespace {

const std::string bad = "\xEF\xBF\xBD";

std::string streamed(std::string_view bytes, std::size_t chunk) {
    keel::Utf8Stream stream;
    std::string out;
    for (std::size_t at = 0; at < bytes.size(); at += chunk)
        stream.push(bytes.substr(at, chunk), out);
    stream.finish(out);
    return out;
}

} // namespace

TEST_CASE("ill-formed UTF-8 is replaced like Python's errors='replace' does") {
    // Pairs of bytes and Python's result for these bytes.
    const std::vector<std::pair<std::string, std::string>> cases{
        {"", ""},
        {"plain \xC3\xA9 \xE6\x97\xA5 \xF0\x9F\x98\x80",
         "plain \xC3\xA9 \xE6\x97\xA5 \xF0\x9F\x98\x80"},
        {"\x80", bad},
        {"\xBF\x80", bad + bad},
        {"\xC0\x80", bad + bad},
        {"\xC1\xBF", bad + bad},
        {"\xC3", bad},
        {"\xC3"
         "A",
         bad + "A"},
        {"\xE0\x80\x80", bad + bad + bad},
        {"\xE0\xA0", bad},
        {"\xE0\xA0\x41", bad + "A"},
        {"\xED\xA0\x80", bad + bad + bad},
        {"\xED\x9F\xBF", "\xED\x9F\xBF"},
        {"\xEF\xBF\xBF", "\xEF\xBF\xBF"},
        {"\xF0\x80\x80\x80", bad + bad + bad + bad},
        {"\xF0\x90\x80", bad},
        {"\xF0\x9F\x98"
         "B",
         bad + "B"},
        {"\xF0\x9F\xC3\xA9", bad + "\xC3\xA9"},
        {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
        {"\xF4\x90\x80\x80", bad + bad + bad + bad},
        {"\xF5\xFF\xFE", bad + bad + bad},
        {"a\0b"s, "a\0b"s},
    };
    for (const auto &[bytes, expected] : cases) {
        CHECK(keel::replace_invalid_utf8(bytes) == expected);
        CHECK(keel::is_valid_utf8(bytes) == (bytes == expected));
        CHECK(keel::is_valid_utf8(expected));
        for (std::size_t chunk = 1; chunk < 5; ++chunk) CHECK(streamed(bytes, chunk) == expected);
    }
}

TEST_CASE("the two validators agree on every sequence of two bytes and many of four") {
    for (unsigned a = 0; a < 256; ++a) {
        for (unsigned b = 0; b < 256; ++b) {
            for (const char *tail : {"", "\x80", "\x80\x80", "\xBF\x41"}) {
                const std::string bytes = {static_cast<char>(a), static_cast<char>(b)};
                const std::string whole = bytes + tail;
                const std::string mended = keel::replace_invalid_utf8(whole);
                if (streamed(whole, 1) != mended ||
                    keel::is_valid_utf8(whole) != (mended == whole)) {
                    INFO(a << " " << b);
                    CHECK(streamed(whole, 1) == mended);
                    CHECK(keel::is_valid_utf8(whole) == (mended == whole));
                }
            }
        }
    }
}

TEST_CASE("code points survive the conversion to UTF-8 and back") {
    for (const char32_t c :
         {0x0U, 0x41U, 0x7FU, 0x80U, 0x7FFU, 0x800U, 0xFFFDU, 0xFFFFU, 0x10000U, 0x10FFFFU}) {
        std::string text;
        keel::append_utf8(text, c);
        CHECK(keel::is_valid_utf8(text));
        std::size_t at = 0;
        CHECK(keel::next_code_point(text, at) == c);
        CHECK(at == text.size());
        CHECK(keel::utf8_length(text, 0) == text.size());
    }
}

TEST_CASE("a stream reports that it holds a beginning, and replaces impossible bytes immediately") {
    keel::Utf8Stream stream;
    std::string out;
    stream.push("\xF0\x9F", out);
    CHECK(out.empty());
    CHECK(stream.holds_back());
    stream.push("\x20", out);
    CHECK(out == bad + " ");
    CHECK_FALSE(stream.holds_back());
    stream.push("\xFF", out);
    CHECK(out == bad + " " + bad);
    stream.push("\xC3", out);
    stream.finish(out);
    CHECK(out == bad + " " + bad + bad);
    stream.finish(out); // nothing is left
    CHECK(out == bad + " " + bad + bad);
}
