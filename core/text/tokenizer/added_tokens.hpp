#pragma once

#include "text/tokenizer/flat_map.hpp"
#include "text/tokenizer/normalizer.hpp"
#include "text/tokenizer/split_regex.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace keel {

// A token outside of the model's merges. The tokenizer searches the text for such tokens first.
struct AddedToken {
    std::int32_t id = 0;
    std::string content;      // valid UTF-8, not empty
    bool special = false;     // decode(skip_special) leaves it out
    bool single_word = false; // matches only if no word character is next to it
    bool lstrip = false;      // includes the white space before it
    bool rstrip = false;      // includes the white space after it
    // true: the search for this token runs in the normalized text, after the search for the other
    // tokens
    bool normalized = true;
    std::string pattern = {}; // the text to search for in the normalized text; empty: `content`
};

// Splits text at added tokens exactly as Hugging Face tokenizers do. First it searches for tokens
// that are not `normalized`. Then it searches the remaining text for the other tokens. Each time it
// takes the leftmost match. If several matches begin at the same place, it takes the longest match.
class AddedTokens {
  public:
    struct Piece {
        std::string_view text; // a part of the text, or a part of the normalized text
        std::int32_t id = -1;  // -1 for ordinary text
        bool at_start = false; // true if the piece is at the start of the text
    };
    struct Cut {
        std::vector<Piece> pieces;
        std::deque<std::string> normalized; // storage for the texts of pieces
    };

    // The contents of all tokens must differ. A content has at most max_content_bytes.
    static constexpr std::size_t max_content_bytes = 1024;
    explicit AddedTokens(std::vector<AddedToken> tokens);

    // Splits valid UTF-8 text into pieces. `plain`: ranges in which special tokens are ordinary
    // text, ascending and disjoint. A special token that is only partly inside such a range is also
    // ordinary text. `continues`: true if the normalizer adds no prefix before the start of the
    // text.
    Cut split(std::string_view text, std::span<const TextRange> plain, bool continues,
              const TextNormalizer &normalizer, RegexScratch &scratch) const;

    const std::vector<AddedToken> &tokens() const noexcept { return tokens_; }
    std::optional<std::int32_t> find(std::string_view content) const;

  private:
    // A byte trie: (node << 8 | byte) -> node. Node 0 is the root. ends[node] is the index of the
    // token that ends there.
    struct Trie {
        FlatMap edges;
        std::vector<std::int32_t> ends;
        void add(std::string_view content, std::int32_t index);
        // Returns the index of the longest token that begins at `offset`, or -1. Sets `end` to the
        // end of the token.
        std::int32_t longest(std::string_view text, std::size_t offset, std::size_t &end) const;
    };

    void pass(const Trie &trie, std::string_view text, bool at_start,
              std::span<const TextRange> plain, RegexScratch &scratch,
              std::vector<Piece> &out) const;
    bool is_whole_word(std::string_view text, TextRange match, RegexScratch &scratch) const;

    std::vector<AddedToken> tokens_;
    std::unordered_map<std::string, std::int32_t> by_content_; // content -> index in tokens_
    Trie plain_;
    Trie normalized_;
    // matches one word character; used only if a token is single_word
    std::optional<SplitRegex> word_;
};

} // namespace keel
