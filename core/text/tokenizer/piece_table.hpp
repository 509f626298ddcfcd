#pragma once

#include "text/tokenizer/tokenizer.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// The bytes and the kind of every id. All bytes are in one string, with an offset per id. So a
// vocabulary takes little more memory than its text.
class PieceTable {
  public:
    struct Entry {
        std::int32_t id = 0;
        std::string bytes;
        TokenKind kind = TokenKind::ordinary;
    };
    // Ids must be 0 or more, and all ids must differ.
    void assign(std::vector<Entry> entries);

    std::int32_t size() const noexcept { return static_cast<std::int32_t>(kinds_.size()); }
    std::string_view bytes(std::int32_t id) const noexcept;
    TokenKind kind(std::int32_t id) const noexcept;
    // Writes the number of tokens of each kind to `info`.
    void count(TokenizerInfo &info) const noexcept;

  private:
    std::string blob_;
    std::vector<std::size_t> begin_; // has one more entry than there are ids
    std::vector<TokenKind> kinds_;
};

} // namespace keel
