#pragma once

#include "text/tokenizer/added_tokens.hpp"
#include "text/tokenizer/char_bpe.hpp"
#include "text/tokenizer/piece_table.hpp"
#include "text/tokenizer/pre_tokenizer.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// SentencePiece-style BPE. Spaces become U+2581, and the text is split at special tokens. In the
// remaining text the characters are merged, also across words. The class holds the special tokens,
// the vocabulary and the merges. The readers of tokenizer files fill them.
class SpmBpe final : public Tokenizer {
  public:
    struct Parts {
        CharBpe bpe;
        PieceTable pieces;
        TextNormalizer normalizer;
        AddedTokens added{{}};
        PreTokenizer pre_tokenizer;
        std::vector<std::int32_t> prefix; // tokens before and after the text, added only with
                                          // EncodeOptions::add_special
        std::vector<std::int32_t> suffix;
        bool adds_leading_space = false;
        std::string source;
    };
    explicit SpmBpe(Parts parts) : parts_(std::move(parts)) {}

    std::string_view piece(std::int32_t id) const noexcept override {
        return parts_.pieces.bytes(id);
    }
    TokenKind kind(std::int32_t id) const noexcept override { return parts_.pieces.kind(id); }
    std::int32_t vocab_size() const noexcept override { return parts_.pieces.size(); }
    std::optional<std::int32_t> find_token(std::string_view text) const override {
        return parts_.added.find(text);
    }
    TokenizerInfo info() const override;
    bool adds_leading_space() const noexcept override { return parts_.adds_leading_space; }

  private:
    void encode_valid(const Input &input, std::vector<std::int32_t> &out) const override;

    Parts parts_;
};

// A vocabulary with scores, from a tokenizer.model or a GGUF file.
struct SpmVocab {
    static constexpr std::size_t max_pieces = 1 << 22;
    enum class Type {
        normal = 1,
        unknown,
        control,
        user_defined,
        unused,
        byte
    }; // the numbers are equal in both files
    struct Piece {
        std::string_view text; // points into the file
        float score = 0;
        Type type = Type::normal;
    };
    std::vector<Piece> pieces;
    std::string source;
    bool byte_fallback = true;
    bool prefix_space = true;      // a space is added before a text
    bool prefix_everywhere = true; // true: a space is also added before text that follows a special
                                   // token
    bool collapse_spaces = false;
    // true: the search for user-defined pieces is like the search for special tokens, and text
    // after such a piece counts as text after a special token. false: user-defined pieces are found
    // as parts of ordinary text, as in SentencePiece.
    bool user_defined_apart = true;
    // tokens from other files; the id of such a token can be equal to the id of a piece, or can
    // follow the ids of the pieces; if it is equal, the token replaces the piece
    std::vector<AddedToken> added;
    std::optional<std::int32_t> bos,
        eos; // the tokens that begin and end a text, if the files give them
    std::vector<std::int32_t> prefix;
    std::vector<std::int32_t> suffix;
};

// Makes a tokenizer from a vocabulary. Throws Error(input) if a score is not finite, if a piece is
// empty or not UTF-8, or if an added token contradicts the pieces. Also throws if the vocabulary is
// larger than that of any real model. The message begins with the vocabulary's source.
std::unique_ptr<SpmBpe> make_spm_bpe(SpmVocab vocab);

// Returns the byte of a byte-fallback piece such as "<0x0A>", or nullopt for any other text.
std::optional<unsigned char> byte_of_piece(std::string_view piece);
// Returns the text of an ordinary piece, in which U+2581 stands for a space.
std::string text_of_piece(std::string_view piece);

} // namespace keel
