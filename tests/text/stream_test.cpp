#include "base/error.hpp"
#include "text/text_stream.hpp"
#include "text/tokenizer/bpe.hpp"

#include <catch2/catch.hpp>

#include <random>

using keel::StopMatcher;
using keel::TextStream;

namespace {

// A tokenizer whose tokens are arbitrary bytes: id i stands for pieces[i].
class PieceTokenizer final : public keel::Tokenizer {
  public:
    explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
    std::string_view piece(std::int32_t id) const noexcept override {
        return id >= 0 && id < vocab_size()
                   ? std::string_view(pieces_[static_cast<std::size_t>(id)])
                   : std::string_view();
    }
    keel::TokenKind kind(std::int32_t id) const noexcept override {
        return piece(id).starts_with("<|") ? keel::TokenKind::special : keel::TokenKind::ordinary;
    }
    std::int32_t vocab_size() const noexcept override {
        return static_cast<std::int32_t>(pieces_.size());
    }
    std::optional<std::int32_t> find_token(std::string_view) const override { return std::nullopt; }
    keel::TokenizerInfo info() const override { return {}; }

  private:
    void encode_valid(const Input &, std::vector<std::int32_t> &) const override {}
    std::vector<std::string> pieces_;
};

// Pushes the pieces one after the other. Returns every output, separated by '|'. The text after the
// last '|' is the output of finish().
std::string shown(const std::vector<std::string> &pieces,
                  const std::vector<std::string> &stops = {}) {
    const PieceTokenizer tokenizer(pieces);
    TextStream stream(tokenizer, stops);
    std::string out;
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) out += stream.push(id) + "|";
    return out + stream.finish();
}

const std::string lost = "\xEF\xBF\xBD";

// Returns the text before the first stop string, by the definition: of the stop strings that end
// first, the longest.
std::string cut(const std::string &text, const std::vector<std::string> &stops, std::string &hit) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        hit.clear();
        for (const std::string &stop : stops)
            if (text.substr(0, end).ends_with(stop) && stop.size() > hit.size()) hit = stop;
        if (!hit.empty()) return text.substr(0, end - hit.size());
    }
    return text;
}

} // namespace

TEST_CASE("characters are printed whole, wherever the tokens split them") {
    const std::string text = "a\xC3\xA9\xE6\x97\xA5\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD"
                             "b\xE2\x80\x8D";
    for (std::size_t first = 0; first <= text.size(); ++first) {
        for (std::size_t second = first; second <= text.size(); ++second) {
            const PieceTokenizer tokenizer(
                {text.substr(0, first), text.substr(first, second - first), text.substr(second)});
            TextStream stream(tokenizer);
            std::string joined;
            for (std::int32_t id = 0; id < 3; ++id) {
                const std::string part = stream.push(id);
                if (!keel::is_valid_utf8(part)) {
                    INFO(first << " " << second);
                    CHECK(keel::is_valid_utf8(part));
                }
                joined += part;
            }
            joined += stream.finish();
            if (joined != text) CHECK(joined == text);
        }
    }
    CHECK(shown({"\xF0", "\x9F", "\x98", "\x80", "!"}) == "|||\xF0\x9F\x98\x80|!|");
}

TEST_CASE("bytes that cannot become a character are replaced immediately") {
    CHECK(shown({"\xF0\x9F", "x", "\xFF", "\xC3"}) == "|" + lost + "x|" + lost + "||" + lost);
    CHECK(shown({"\xE6", "\xE6", "\x97\xA5"}) == "|" + lost + "|\xE6\x97\xA5|");
    CHECK(shown({"\xED\xA0"}) == lost + lost + "|");
}

TEST_CASE("special tokens are left out unless they are requested") {
    CHECK(shown({"a", "<|x|>", "b"}) == "a||b|");
    const PieceTokenizer tokenizer({"<|x|>"});
    TextStream all(tokenizer, {}, {.skip_special = false});
    CHECK(all.push(0) == "<|x|>");
    CHECK(all.push(77).empty()); // there is no token with this id
}

TEST_CASE("a stop string is found across tokens and no part of it is printed") {
    CHECK(shown({"one ", "E", "N", "D two"}, {"END"}) == "one ||||");
    CHECK(shown({"one E", "N", "x END"}, {"END"}) == "one ||ENx |");
    // the stop string is never complete, so its beginning is printed at the end
    CHECK(shown({"one E", "N"}, {"END"}) == "one ||EN");
    // the stop string begins inside the second token
    CHECK(shown({"aab", "aaab", "c"}, {"aaab"}) == "aab|||");
    CHECK(shown({"a", "a", "a", "a", "b"}, {"aab"}) == "||a|a||");
    CHECK(shown({"x\n", "\n", "y"}, {"\n\n"}) == "x|||");
    CHECK(shown({"\xC3", "\xA9 \xE6\x97", "\xA5!"}, {"\xE6\x97\xA5"}) == "|\xC3\xA9 ||");
}

TEST_CASE("the stream reports the stop string that it found, and is silent afterwards") {
    const PieceTokenizer tokenizer({"abcd", "ef"});
    TextStream stream(tokenizer, {"xyz", "cd", "bcd"});
    CHECK_FALSE(stream.stopped());
    CHECK(stream.push(0) == "a"); // both are complete at the d, so the longest one counts
    CHECK(stream.stopped());
    CHECK(stream.stop_string() == "bcd");
    CHECK(stream.push(1).empty());
    CHECK(stream.finish().empty());
    stream.reset();
    CHECK_FALSE(stream.stopped());
    CHECK(stream.stop_string().empty());
    CHECK(stream.push(1) == "ef");
    TextStream first(tokenizer, {"abcde", "bc"});
    CHECK(first.push(0) == "a"); // "bc" is complete before "abcde" can be
    CHECK(first.stop_string() == "bc");
}

TEST_CASE("a stop string that ends in a replaced byte is found when the text ends") {
    const PieceTokenizer tokenizer({"a\xC3"});
    TextStream stream(tokenizer, {lost});
    CHECK(stream.push(0) == "a");
    CHECK(stream.finish().empty());
    CHECK(stream.stopped());
}

TEST_CASE("stop strings that can never occur are refused") {
    CHECK_THROWS_WITH(StopMatcher({"a", ""}), Catch::Matchers::Contains("stop string 1 is empty"));
    CHECK_THROWS_WITH(StopMatcher({"\xFF"}), Catch::Matchers::Contains("not valid UTF-8"));
}

TEST_CASE("for random texts, cuts and stop strings the stream agrees with the definition") {
    std::mt19937 random(7);
    const auto pick = [&](unsigned n) { return static_cast<std::size_t>(random() % n); };
    const auto word = [&](std::size_t length) {
        std::string out;
        for (std::size_t i = 0; i < length; ++i)
            out += pick(3) != 0 ? "a" : pick(2) != 0 ? "b" : "\xC3\xA9";
        return out;
    };
    for (int round = 0; round < 3000; ++round) {
        const std::string text = word(pick(30));
        std::vector<std::string> stops;
        for (std::size_t k = pick(4); k > 0; --k) stops.push_back(word(1 + pick(5)));
        std::vector<std::string> pieces;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t length = std::min(1 + pick(4), text.size() - at);
            pieces.push_back(text.substr(at, length));
            at += length;
        }
        std::string hit;
        const std::string expected = cut(text, stops, hit);
        const PieceTokenizer tokenizer(pieces);
        TextStream stream(tokenizer, stops);
        std::string out;
        bool prefix = true;
        for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
            out += stream.push(id);
            prefix = prefix && expected.starts_with(out);
        }
        out += stream.finish();
        if (!prefix || out != expected || stream.stop_string() != hit) {
            INFO("text " << text);
            CHECK(prefix);
            CHECK(out == expected);
            CHECK(stream.stop_string() == hit);
        }
    }
}
