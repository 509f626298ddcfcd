#pragma once

#include "text/tokenizer/bpe.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace keel {

// Byte-pair encoding of one word that starts from its characters, like SentencePiece. A character
// without a token becomes the tokens of its bytes (byte fallback). If this is not possible, it
// becomes the unknown token. Immutable once filled.
class CharBpe {
  public:
    CharBpe() { byte_ids_.fill(-1); }

    void set_character(char32_t c, std::int32_t id) {
        characters_.put(c, static_cast<std::uint64_t>(id));
    }
    // Sets the symbol of a character that occurs in merges but is not a token. `symbol` is >=
    // `first_symbol`, so it is not the id of a token.
    void set_symbol_only(char32_t c, std::int32_t symbol);
    void set_first_symbol(std::int32_t symbol) { first_symbol_ = symbol; }
    void set_byte(unsigned char byte, std::int32_t id) { byte_ids_[byte] = id; }
    // Sets the unknown token. `fuse`: a run of unknown characters becomes one token. Without an
    // unknown token, such characters are dropped.
    void set_unknown(std::int32_t id, bool fuse) {
        unknown_ = id;
        fuse_unknown_ = fuse;
    }
    MergeTable &merges() noexcept { return merges_; }
    void add_whole_word(std::string word, std::int32_t id) {
        whole_words_.insert_or_assign(std::move(word), id);
    }

    // Appends the tokens of a word. The word must be valid UTF-8 of less than 2^31 bytes. O(n log
    // n).
    void encode(std::string_view word, MergeScratch &scratch, std::vector<std::int32_t> &out) const;

    std::size_t merge_count() const noexcept { return merges_.size(); }

  private:
    // Appends the tokens of the bytes of a character that has no token. Returns false if a byte has
    // no token.
    bool push_bytes(char32_t c, std::vector<std::int32_t> &out) const;

    FlatMap characters_; // code point -> symbol
    std::array<std::int32_t, 256> byte_ids_{};
    MergeTable merges_;
    WordMap whole_words_;
    std::vector<char32_t> symbol_only_; // characters of the symbols from first_symbol_ on
    std::int32_t first_symbol_ = INT32_MAX;
    std::int32_t unknown_ = -1;
    bool fuse_unknown_ = false;
};

// A piece of a vocabulary with scores, from tokenizer.model or GGUF.
struct ScoredPiece {
    std::string_view text; // valid UTF-8, not empty; U+2581 stands for a space
    float score = 0;       // finite; higher scores merge first
    std::int32_t id = 0;
};

// Fills characters and merges. Two symbols merge if their joined text is a piece. Ids must be below
// `vocab_size`. Throws Error(input) "SOURCE: ..." if the pieces exceed the limits of any real
// vocabulary.
void add_scored_pieces(std::span<const ScoredPiece> pieces, std::int32_t vocab_size,
                       std::string_view source, CharBpe &bpe);

} // namespace keel
