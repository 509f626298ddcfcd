#pragma once

#include "text/flat_map.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace keel {

// GPT-2's reversible alphabet: each byte value is one printable character, so that a vocabulary can be written as text.
// The bytes behind a text in this alphabet; nothing if it has a character from outside it.
std::optional<std::string> bytes_of_symbols(std::string_view symbols);
// The character (UTF-8) of a byte.
const std::string &symbol_of_byte(unsigned char byte);

// Byte-pair encoding of one word: the merge rules and the byte tokens they start from. Immutable once filled.
class Bpe {
  public:
    // What encode() needs from word to word; one per thread.
    struct Scratch {
        struct Symbol {
            std::int32_t id;
            std::int32_t previous; // index, -1: none
            std::int32_t next;     // index, -1: none
            bool gone;             // merged into the one before it
        };
        struct Candidate {
            std::uint32_t rank;
            std::uint32_t position;
            std::int32_t id;
        };
        std::vector<Symbol> symbols;
        std::vector<Candidate> heap;
    };

    Bpe() { byte_ids_.fill(-1); }

    void set_byte(unsigned char byte, std::int32_t id) { byte_ids_[byte] = id; }
    // A byte without a token becomes this one; without it such bytes vanish, as in Hugging Face tokenizers.
    void set_unknown(std::int32_t id, bool fuse) {
        unknown_ = id;
        fuse_unknown_ = fuse;
    }
    void reserve_merges(std::size_t count) { merges_.reserve(count); }
    // left + right -> merged; lower ranks go first. A pair that comes again gets the later rule.
    void add_merge(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t merged);
    // A word that is a token as it stands becomes that token, whatever the merges say.
    void add_whole_word(std::string bytes, std::int32_t id) {
        whole_words_.insert_or_assign(std::move(bytes), id);
    }

    // Appends the tokens of a word of less than 2^31 bytes. O(n log n).
    void encode(std::string_view word, Scratch &scratch, std::vector<std::int32_t> &out) const;

    std::size_t merge_count() const noexcept { return merges_.size(); }
    // Byte values that have no token of their own.
    std::size_t missing_bytes() const noexcept;

  private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view s) const noexcept { return std::hash<std::string_view>{}(s); }
    };

    void fill_symbols(std::string_view word, Scratch &scratch) const;
    void push_pair(Scratch &scratch, std::int32_t position) const;

    std::array<std::int32_t, 256> byte_ids_{};
    FlatMap merges_; // left << 32 | right -> rank << 32 | merged
    std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> whole_words_;
    std::int32_t unknown_ = -1;
    bool fuse_unknown_ = false;
};

} // namespace keel
