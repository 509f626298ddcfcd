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

// A token that stands outside the model's merges: found in the text before everything else.
struct AddedToken {
    std::int32_t id = 0;
    std::string content;      // valid UTF-8, not empty
    bool special = false;     // left out by decode(skip_special)
    bool single_word = false; // only where no word character touches it
    bool lstrip = false;      // takes the white space before it along
    bool rstrip = false;      // and behind it
    bool normalized = true;   // looked for after the others, in the normalized text
    std::string pattern = {}; // what is looked for there; empty: `content`
};

// Cuts text at added tokens exactly as Hugging Face tokenizers do: first those that are not
// `normalized`, then, in what is left, the others; at each place the leftmost match, of several the
// longest.
class AddedTokens {
  public:
    struct Piece {
        std::string_view text; // of the text, or of a normalized stretch of it
        std::int32_t id = -1;  // -1: ordinary text
        bool at_start = false; // nothing of the text stands before it
    };
    struct Cut {
        std::vector<Piece> pieces;
        std::deque<std::string> normalized; // what pieces point into
    };

    // Contents must differ from each other. Each at most max_content_bytes long.
    static constexpr std::size_t max_content_bytes = 1024;
    explicit AddedTokens(std::vector<AddedToken> tokens);

    // The pieces of valid UTF-8 text. plain: where special tokens are ordinary text (one that only
    // touches such a range too); ascending and disjoint. continues: the normalizer puts no prefix
    // before the text's beginning.
    Cut split(std::string_view text, std::span<const TextRange> plain, bool continues,
              const TextNormalizer &normalizer, RegexScratch &scratch) const;

    const std::vector<AddedToken> &tokens() const noexcept { return tokens_; }
    std::optional<std::int32_t> find(std::string_view content) const;

  private:
    // A byte trie: (node << 8 | byte) -> node; node 0 is the root. ends[node] = index of the token
    // that ends there.
    struct Trie {
        FlatMap edges;
        std::vector<std::int32_t> ends;
        void add(std::string_view content, std::int32_t index);
        // The longest token that begins at `offset`: its index, or -1; `end` is where it ends.
        std::int32_t longest(std::string_view text, std::size_t offset, std::size_t &end) const;
    };

    void pass(const Trie &trie, std::string_view text, bool at_start,
              std::span<const TextRange> plain, RegexScratch &scratch,
              std::vector<Piece> &out) const;
    bool is_whole_word(std::string_view text, TextRange match, RegexScratch &scratch) const;

    std::vector<AddedToken> tokens_;
    std::unordered_map<std::string, std::int32_t> by_content_; // -> index in tokens_
    Trie plain_;
    Trie normalized_;
    std::optional<SplitRegex> word_; // one word character; only if some token is single_word
};

} // namespace keel
