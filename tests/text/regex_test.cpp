#include "base/error.hpp"
#include "text/tokenizer/pre_tokenizer.hpp"
#include "text/tokenizer/split_regex.hpp"

#include <catch2/catch.hpp>

using Catch::Matchers::Contains;
using keel::SplitRegex;

namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
    const SplitRegex regex(pattern, SplitRegex::Syntax::regex, "test");
    keel::RegexScratch scratch(text.size());
    std::vector<keel::TextRange> ranges;
    regex.find_all(text, scratch, ranges);
    std::vector<std::string> out;
    for (const auto &range : ranges)
        out.emplace_back(text.substr(range.begin, range.end - range.begin));
    return out;
}

using Words = std::vector<std::string>;

} // namespace

TEST_CASE("patterns have the same meaning as in Oniguruma") {
    CHECK(matches(R"(\s)", "a\xE1\xA0\x8E"
                           "b\xC2\x85")
              .size() == 1); // U+180E is not a space, U+0085 is
    CHECK(matches(R"([^\S]+)", "a \tb") == Words{" \t"});
    CHECK(matches(R"(\w+)", "e\xCC\x81t_1-x") ==
          Words{"e\xCC\x81t_1", "x"});             // a combining mark is part of a word
    CHECK(matches(R"(^b)", "a\nb") == Words{"b"}); // ^ and $ match at lines
    CHECK(matches(R"(a$)", "a\nb") == Words{"a"});
    CHECK(matches(".", "\r\n") == Words{"\r"}); // only LF ends a line
    CHECK(matches("ba{,2}", "baaa") == Words{"baa"});
    CHECK(matches("a{x", "a{x") == Words{"a{x"});                 // this brace is not a repetition
    CHECK(matches("(?i:'s)", "'\xC5\xBF") == Words{"'\xC5\xBF"}); // U+017F, the long s
    CHECK(matches(R"(\v)", "\n\v") == Words{"\v"});
    CHECK(matches(R"([\d\-]+)", "1-2") == Words{"1-2"});
    // The last member of a set does not begin a range: the class has spaces, the hyphen and U+4E00,
    // and nothing between them.
    CHECK(matches("[\\s-\xE4\xB8\x80]+", "-\xE4\xB8\x80 \xE3\x82\xA2") == Words{"-\xE4\xB8\x80 "});
    CHECK(matches(R"(a|)", "ba") ==
          Words{"", "a"}); // there is no empty match directly after the match of a
}

TEST_CASE("patterns that PCRE2 would read differently are refused") {
    for (const char *pattern :
         {R"(\h)",    R"(\K)",      R"(\G)",     R"(\X)",   R"(\R)",       R"((a)\1)",
          R"((?m)a)", R"((?x: a))", R"(a(?i)b)", "[a[bc]]", "[[:alpha:]]", "[a&&b]",
          "a{2}+",    "a{2}?",      R"([\b])",   R"([\W])", "(?<n>a)",     "(*UTF)a",
          "[a",       R"(\p{L)",    R"(\pL)",    R"(\xE9)", R"(\u12)",     "\\"}) {
        INFO(pattern);
        CHECK_THROWS_WITH(SplitRegex(pattern, SplitRegex::Syntax::regex, "FILE: a.b"),
                          Contains("FILE: a.b: ") && Contains("not supported"));
    }
    for (const char *pattern : {"(a", "a)", "*a", R"(\p{Nonsense})", "(?<=a+)b", "[z-a]"}) {
        INFO(pattern);
        CHECK_THROWS_WITH(SplitRegex(pattern, SplitRegex::Syntax::regex, "FILE"),
                          Contains("FILE: the pattern does not compile"));
    }
    CHECK_THROWS_AS(SplitRegex(std::string(100'000, 'a'), SplitRegex::Syntax::regex, "FILE"),
                    keel::Error);
    CHECK_THROWS_AS(SplitRegex(std::string(1000, '('), SplitRegex::Syntax::regex, "FILE"),
                    keel::Error);
}

TEST_CASE("a literal pattern has no special characters") {
    const SplitRegex dot(".*", SplitRegex::Syntax::literal, "test");
    keel::RegexScratch scratch(8);
    std::vector<keel::TextRange> ranges;
    dot.find_all("a.*b..*", scratch, ranges);
    REQUIRE(ranges.size() == 2);
    CHECK(ranges[0].begin == 1);
    CHECK(ranges[1].begin == 5);
}

TEST_CASE("each behaviour of a split gives its own pieces") {
    using B = keel::SplitBehavior;
    // "ab--c-" has a match at each hyphen.
    const std::string text = "ab--c-";
    const std::vector<keel::TextRange> hyphens{{2, 3}, {3, 4}, {5, 6}};
    const auto pieces = [&](B behavior, bool invert) {
        std::string out;
        for (const auto &range : keel::split_at_matches(text.size(), hyphens, behavior, invert)) {
            if (!out.empty()) out += ' ';
            out.append(text, range.begin, range.end - range.begin);
        }
        return out;
    };
    CHECK(pieces(B::removed, false) == "ab c");
    CHECK(pieces(B::removed, true) == "- - -");
    CHECK(pieces(B::isolated, false) == "ab - - c -");
    CHECK(pieces(B::merged_with_previous, false) == "ab- - c-");
    CHECK(pieces(B::merged_with_next, false) == "ab - -c -");
    CHECK(pieces(B::contiguous, false) == "ab -- c -");
}
