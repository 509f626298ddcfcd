#pragma once

#include "text/tokenizer/added_tokens.hpp"
#include "text/tokenizer/bpe.hpp"
#include "text/tokenizer/piece_table.hpp"
#include "text/tokenizer/pre_tokenizer.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <memory>
#include <string>
#include <vector>

namespace keel {

// Byte-level BPE. First the text is split at added tokens. Patterns split the remaining text into
// words, and the bytes of each word are merged. The class holds the added tokens, the patterns and
// the merges. The readers of tokenizer files fill them.
class ByteLevelBpe final : public Tokenizer {
  public:
    struct Parts {
        Bpe bpe;
        PieceTable pieces;
        TextNormalizer normalizer;
        AddedTokens added{{}};
        PreTokenizer pre_tokenizer;
        std::vector<std::int32_t> prefix; // tokens before and after the text, added only with
                                          // EncodeOptions::add_special
        std::vector<std::int32_t> suffix;
        std::string source;
    };
    explicit ByteLevelBpe(Parts parts) : parts_(std::move(parts)) {}

    std::string_view piece(std::int32_t id) const noexcept override {
        return parts_.pieces.bytes(id);
    }
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

} // namespace keel
