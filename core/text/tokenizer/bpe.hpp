#pragma once

#include "text/tokenizer/flat_map.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace keel {

// Converts text in GPT-2's reversible alphabet to bytes. In this alphabet each byte value is one
// printable character, so that a vocabulary can be written as text. Returns nullopt if a character
// is not in the alphabet.
std::optional<std::string> bytes_of_symbols(std::string_view symbols);
// Returns the character of a byte in GPT-2's alphabet, as UTF-8.
const std::string &symbol_of_byte(unsigned char byte);

// Memory for merging. It is used again for the next word. Each thread needs its own.
struct MergeScratch {
    struct Symbol {
        std::int32_t id;
        std::int32_t previous; // index; -1: none
        std::int32_t next;     // index; -1: none
        bool gone;             // merged into the symbol before it
    };
    struct Candidate {
        std::uint32_t rank;
        std::uint32_t position;
        std::int32_t id;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;

    // Appends a symbol to the word.
    void push(std::int32_t id) {
        const auto index = static_cast<std::int32_t>(symbols.size());
        if (index > 0) symbols.back().next = index;
        symbols.push_back({id, index - 1, -1, false});
    }
};

// The rules that merge two neighbouring symbols into one. The rule with the lowest rank is applied
// first. If ranks are equal, the leftmost pair is merged first. Immutable once filled.
class MergeTable {
  public:
    void reserve(std::size_t count) { rules_.reserve(count); }
    // Adds the rule left + right -> merged. If a pair is added again, the later rule replaces the
    // earlier one.
    void add(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t merged);
    std::size_t size() const noexcept { return rules_.size(); }

    // Applies the rules until no rule applies. The word must have less than 2^31 symbols. O(n log
    // n).
    void merge(MergeScratch &scratch) const;

  private:
    void push_pair(MergeScratch &scratch, std::int32_t position) const;

    FlatMap rules_; // key: left << 32 | right; value: rank << 32 | merged
};

// Hash functions that let a map of strings find a std::string_view without making a string.
struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const noexcept {
        return std::hash<std::string_view>{}(s);
    }
};
using WordMap = std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>>;

// Byte-pair encoding of one word, starting from its bytes. Immutable once filled.
class Bpe {
  public:
    Bpe() { byte_ids_.fill(-1); }

    void set_byte(unsigned char byte, std::int32_t id) { byte_ids_[byte] = id; }
    // Sets the token for bytes that have no token of their own. Without this token, such bytes are
    // dropped, as in Hugging Face tokenizers.
    void set_unknown(std::int32_t id, bool fuse) {
        unknown_ = id;
        fuse_unknown_ = fuse;
    }
    MergeTable &merges() noexcept { return merges_; }
    // Adds a whole word: a word that equals `bytes` becomes the token `id`, without merges.
    void add_whole_word(std::string bytes, std::int32_t id) {
        whole_words_.insert_or_assign(std::move(bytes), id);
    }

    // Appends the tokens of a word. The word must have less than 2^31 bytes. O(n log n).
    void encode(std::string_view word, MergeScratch &scratch, std::vector<std::int32_t> &out) const;

    std::size_t merge_count() const noexcept { return merges_.size(); }
    // Returns the number of byte values without a token.
    std::size_t missing_bytes() const noexcept;

  private:
    void fill_symbols(std::string_view word, MergeScratch &scratch) const;

    std::array<std::int32_t, 256> byte_ids_{};
    MergeTable merges_;
    WordMap whole_words_;
    std::int32_t unknown_ = -1;
    bool fuse_unknown_ = false;
};

} // namespace keel
