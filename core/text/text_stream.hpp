#pragma once

#include "text/tokenizer/tokenizer.hpp"
#include "text/utf8.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Watches text for stop strings without ever letting a part of one through. A match is decided byte
// by byte: the stop string that is complete first wins, of several that are complete at the same
// byte the longest. So the result does not depend on how the text is cut into pieces.
class StopMatcher {
  public:
    // Throws Error (usage) for an empty stop string or one that is not valid UTF-8 (it could never
    // be found).
    explicit StopMatcher(std::vector<std::string> stops);

    // Appends what of `text` is now certain to lie before any stop string. After a hit everything
    // is swallowed.
    void push(std::string_view text, std::string &out);
    // The text ends here: what was held back comes out, unless a stop string was hit.
    void finish(std::string &out);
    void reset();

    bool hit() const noexcept { return hit_.has_value(); }
    // The index of the stop string that was hit.
    std::optional<std::size_t> hit_index() const noexcept { return hit_; }
    const std::vector<std::string> &stops() const noexcept { return stops_; }

  private:
    // Advances every stop string by one byte and returns the length of the longest beginning that
    // the text now ends in.
    std::size_t advance(char byte);

    std::vector<std::string> stops_;
    std::vector<std::vector<std::uint32_t>>
        borders_;                        // per stop string: Knuth-Morris-Pratt's failure function
    std::vector<std::uint32_t> matched_; // per stop string: how much of it the text ends in
    std::string held_;                   // text that may be the beginning of a stop string
    std::optional<std::size_t> hit_;
};

// Turns generated tokens into text that can be shown at once: complete characters only (bytes that
// can no longer become a character are U+FFFD at once), and nothing of a stop string. What push()
// and finish() return, joined, is tokenizer.decode() of all the tokens with the same options, cut
// off before the first stop string.
class TextStream {
  public:
    // What a generation as a rule is: text that goes on behind a prompt.
    static constexpr DecodeOptions behind_prompt{.skip_special = true, .continues = true};

    // Keeps a reference to the tokenizer.
    explicit TextStream(const Tokenizer &tokenizer, std::vector<std::string> stops = {},
                        DecodeOptions options = behind_prompt)
        : tokenizer_(&tokenizer), stops_(std::move(stops)), options_(options) {
        reset();
    }

    // The text that this token makes printable; often empty. After a stop always empty.
    std::string push(std::int32_t token);
    // The generation is over: an unfinished character becomes U+FFFD, and text that was held back
    // comes out.
    std::string finish();

    // Whether a stop string was completed; generation should end. finish() may hit one too (one
    // that ends in U+FFFD).
    bool stopped() const noexcept { return stops_.hit(); }
    // The stop string that was hit; empty if none was.
    std::string_view stop_string() const noexcept;
    // Ready for another text.
    void reset();

  private:
    const Tokenizer *tokenizer_;
    Utf8Stream utf8_;
    StopMatcher stops_;
    DecodeOptions options_;
    bool at_start_ = false; // the next token's leading space is dropped
};

} // namespace keel
