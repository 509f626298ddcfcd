#pragma once

#include "text/tokenizer/tokenizer.hpp"
#include "text/utf8.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Searches text for stop strings and never outputs a part of a stop string. The search goes byte by
// byte. The first stop string that is complete is the hit. If several stop strings are complete at
// the same byte, the longest one is the hit. So the result does not depend on how the text is split
// into pieces.
class StopMatcher {
  public:
    // Throws Error(usage) for a stop string that is empty or is not valid UTF-8, because such a
    // stop string could never be found.
    explicit StopMatcher(std::vector<std::string> stops);

    // Appends to `out` the text that cannot be part of a stop string. After a hit, the function
    // drops all text.
    void push(std::string_view text, std::string &out);
    // Ends the text. Appends the text that was held back, unless there was a hit.
    void finish(std::string &out);
    void reset();

    bool hit() const noexcept { return hit_.has_value(); }
    bool holds_back() const noexcept { return !held_.empty(); }
    // Returns the index of the stop string that was hit, if any.
    std::optional<std::size_t> hit_index() const noexcept { return hit_; }
    const std::vector<std::string> &stops() const noexcept { return stops_; }

  private:
    // Advances every stop string by one byte. Returns the length of the longest prefix of a stop
    // string with which the text now ends.
    std::size_t advance(char byte);

    std::vector<std::string> stops_;
    // for each stop string, Knuth-Morris-Pratt's failure function
    std::vector<std::vector<std::uint32_t>> borders_;
    // for each stop string, the length of its prefix with which the text ends
    std::vector<std::uint32_t> matched_;
    std::string held_; // text that can be the start of a stop string
    std::optional<std::size_t> hit_;
};

// Turns generated tokens into text that can be shown at once. The output has only complete
// characters and no part of a stop string. If bytes can no longer become a character, the output
// has U+FFFD for them at once. The joined results of push() and finish() are equal to
// tokenizer.decode() of all tokens with the same options, up to the first stop string.
class TextStream {
  public:
    // Options for the usual generation: text that continues a prompt.
    static constexpr DecodeOptions behind_prompt{.skip_special = true, .continues = true};

    // Keeps a reference to the tokenizer.
    explicit TextStream(const Tokenizer &tokenizer, std::vector<std::string> stops = {},
                        DecodeOptions options = behind_prompt)
        : tokenizer_(&tokenizer), stops_(std::move(stops)), options_(options) {
        reset();
    }

    // Returns the text that can be shown after this token. It is often empty. After a stop string
    // it is always empty.
    std::string push(std::int32_t token);
    // The number of bytes of text that the token adds. 0 for a special token that is skipped.
    std::size_t bytes_of(std::int32_t token) const;
    // Returns true if push() got text that it has not returned yet.
    bool holds_back() const noexcept { return utf8_.holds_back() || stops_.holds_back(); }
    // Ends the generation. An unfinished character becomes U+FFFD, and text that was held back is
    // returned.
    std::string finish();

    // Returns true if a stop string was completed. Then the generation should end. finish() can
    // also complete a stop string, if the text ends in U+FFFD.
    bool stopped() const noexcept { return stops_.hit(); }
    // Returns the stop string that was hit. Empty if there was no hit.
    std::string_view stop_string() const noexcept;
    // Prepares for another text.
    void reset();

  private:
    const Tokenizer *tokenizer_;
    Utf8Stream utf8_;
    StopMatcher stops_;
    DecodeOptions options_;
    bool at_start_ = false; // true: the leading space of the next token is dropped
};

} // namespace keel
