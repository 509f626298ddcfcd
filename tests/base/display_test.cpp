#include "base/display.hpp"

#include <catch2/catch.hpp>

#include <limits>

using keel::format_bytes;
using keel::printable;

TEST_CASE("printable text keeps well-formed UTF-8 and escapes the rest") {
    CHECK(printable("model.embed_tokens.weight") == "model.embed_tokens.weight");
    CHECK(printable("日本 é 😀") == "日本 é 😀");
    CHECK(printable("a\nb\x1b[31m") == "a\\x0ab\\x1b[31m");
    CHECK(printable("\xff\xc3") == "\\xff\\xc3");
    CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");          // an overlong encoding
    CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80"); // a surrogate
    CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
    CHECK(printable("\xc2\x9b") == "\\xc2\\x9b"); // a C1 control character
}

TEST_CASE("printable text is cut at its limit") {
    CHECK(printable("abcdef", 3) == "abc...");
    CHECK(printable("abc", 3) == "abc");
    CHECK(printable(std::string(1000, 'x')).size() == 123);
}

TEST_CASE("byte counts are written with the unit that fits") {
    CHECK(format_bytes(0) == "0 B");
    CHECK(format_bytes(1023) == "1023 B");
    CHECK(format_bytes(1024) == "1.0 KiB");
    CHECK(format_bytes(1024 * 1024 - 1) == "1.0 MiB");
    CHECK(format_bytes(uint64_t{11} << 20) == "11.0 MiB");
    CHECK(format_bytes(std::numeric_limits<uint64_t>::max()) == "16.0 EiB");
}
