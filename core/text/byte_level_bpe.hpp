#pragma once

#include "text/added_tokens.hpp"
#include "text/bpe.hpp"
#include "text/json_node.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/tokenizer.hpp"

#include <memory>
#include <string>
#include <vector>

namespace keel {

// The bytes and the kind of every id: one string and an offset per id, so that a vocabulary costs little more than its
// letters.
class PieceTable {
  public:
    struct Entry {
        std::int32_t id = 0;
        std::string bytes;
        TokenKind kind = TokenKind::ordinary;
    };
    // Ids must be >= 0 and differ from each other.
    void assign(std::vector<Entry> entries);

    std::int32_t size() const noexcept { return static_cast<std::int32_t>(kinds_.size()); }
    std::string_view bytes(std::int32_t id) const noexcept;
    TokenKind kind(std::int32_t id) const noexcept;

  private:
    std::string blob_;
    std::vector<std::size_t> begin_; // one more than ids
    std::vector<TokenKind> kinds_;
};

// Byte-level BPE: added tokens are cut out, the rest is split into words by patterns, and the bytes of each word are
// merged. Holds the parts; whoever reads a file fills them.
class ByteLevelBpe final : public Tokenizer {
  public:
    struct Parts {
        Bpe bpe;
        PieceTable pieces;
        AddedTokens added{{}};
        PreTokenizer pre_tokenizer;
        std::vector<std::int32_t> prefix; // put before and behind the text when special tokens are wanted
        std::vector<std::int32_t> suffix;
        std::string source;
    };
    explicit ByteLevelBpe(Parts parts) : parts_(std::move(parts)) {}

    std::string_view piece(std::int32_t id) const noexcept override { return parts_.pieces.bytes(id); }
    TokenKind kind(std::int32_t id) const noexcept override { return parts_.pieces.kind(id); }
    std::int32_t vocab_size() const noexcept override { return parts_.pieces.size(); }
    std::optional<std::int32_t> find_token(std::string_view text) const override {
        return parts_.added.find(text);
    }
    TokenizerInfo info() const override;

  private:
    void encode_valid(const Input &input, std::vector<std::int32_t> &out) const override;

    Parts parts_;
};

// From the tree of a tokenizer.json (`root.where()` names the file). Understood:
//   model           BPE; merges as "a b" or ["a", "b"]; ignore_merges, unk_token, fuse_unk
//   pre_tokenizer   ByteLevel, or a Sequence of Split and Digits steps that ends in ByteLevel
//   post_processor  TemplateProcessing, ByteLevel, a Sequence of these, or none
//   decoder         ByteLevel
//   added_tokens    all five flags
//   normalizer      none
// "truncation" and "padding" are settings of a batch, not of the text's tokens, and play no part here.
std::unique_ptr<ByteLevelBpe> parse_byte_level_bpe(const JsonNode &root);

} // namespace keel
