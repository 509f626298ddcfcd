// Makes an SpmBpe from a vocabulary with scores.
#include "text/tokenizer/spm_bpe.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "text/utf8.hpp"

#include <cmath>
#include <unordered_map>

namespace keel {

namespace {

using Type = SpmVocab::Type;

void check_piece(const SpmVocab &vocab, std::size_t id) {
    const SpmVocab::Piece &piece = vocab.pieces[id];
    const auto fail = [&](std::string_view what) {
        throw_error(ErrorKind::input, "{}: piece {} ({}) {}", vocab.source, id,
                    quote_text(piece.text), what);
    };
    if (!std::isfinite(piece.score)) fail("has a score that is not a finite number");
    // an empty piece can never be found in a text; some files have empty pieces for unused ids
    if (!is_valid_utf8(piece.text)) fail("is not valid UTF-8");
    if (piece.type == Type::byte && !byte_of_piece(piece.text))
        fail("is a byte token, so its text must be one of <0x00> to <0xFF>");
    if ((piece.type == Type::control || piece.type == Type::user_defined) &&
        piece.text.size() > AddedTokens::max_content_bytes)
        fail(fmt::format("is a special or added token and may have at most {} bytes",
                         AddedTokens::max_content_bytes));
}

// The pieces of a vocabulary together with its added tokens. If a piece and an entry of
// `vocab.added` contradict each other, the entry of `vocab.added` wins.
class Table {
  public:
    explicit Table(const SpmVocab &vocab) : vocab_(&vocab) {
        for (const AddedToken &token : vocab.added) own(token);
    }

    void add_piece(std::int32_t id, const SpmVocab::Piece &piece) {
        if (taken_.contains(id)) return;
        switch (piece.type) {
        case Type::normal:
        case Type::unused:
            entries_.push_back({id, text_of_piece(piece.text), TokenKind::ordinary});
            break;
        case Type::byte:
            entries_.push_back({id, std::string(1, static_cast<char>(*byte_of_piece(piece.text))),
                                TokenKind::ordinary});
            break;
        case Type::unknown:
        case Type::control:
        case Type::user_defined: add_token(id, piece); break;
        }
    }

    PieceTable pieces() {
        PieceTable table;
        table.assign(std::move(entries_));
        return table;
    }
    std::vector<AddedToken> tokens() { return std::move(tokens_); }

  private:
    void own(const AddedToken &token) {
        // A special token can have another name than its piece. An ordinary word cannot, because
        // merges would still find the word.
        const auto id = static_cast<std::size_t>(token.id);
        if (id < vocab_->pieces.size() && vocab_->pieces[id].type == Type::normal &&
            !vocab_->pieces[id].text.empty() &&
            text_of_piece(vocab_->pieces[id].text) != token.content)
            throw_error(ErrorKind::input,
                        "{}: added token {} has the id {}, which already belongs to piece {}",
                        vocab_->source, quote_text(token.content), token.id,
                        quote_text(vocab_->pieces[id].text));
        if (const auto [it, is_new] = taken_.emplace(token.id, token.content); !is_new)
            throw_error(ErrorKind::input, "{}: id {} is given to both {} and {}", vocab_->source,
                        token.id, quote_text(it->second), quote_text(token.content));
        entries_.push_back(
            {token.id, token.content, token.special ? TokenKind::special : TokenKind::added});
        push(token);
    }

    void add_token(std::int32_t id, const SpmVocab::Piece &piece) {
        AddedToken token;
        token.id = id;
        token.content = piece.text;
        token.special = piece.type != Type::user_defined;
        token.normalized = !token.special && !vocab_->user_defined_apart;
        entries_.push_back({id, token.special ? std::string(piece.text) : text_of_piece(piece.text),
                            token.special ? TokenKind::special : TokenKind::added});
        push(std::move(token));
    }

    // If two tokens have equal texts, the tokenizer finds the first one.
    void push(AddedToken token) {
        if (token.content.empty() || !contents_.emplace(token.content, token.id).second) return;
        token.pattern = token.content;
        // the search runs in text that is not normalized, so U+2581 in the piece becomes a space
        if (!token.special && !token.normalized) token.content = text_of_piece(token.content);
        tokens_.push_back(std::move(token));
    }

    const SpmVocab *vocab_;
    std::vector<PieceTable::Entry> entries_;
    std::vector<AddedToken> tokens_;
    std::unordered_map<std::int32_t, std::string> taken_;
    std::unordered_map<std::string, std::int32_t> contents_;
};

// Fills the characters, merges, bytes and the unknown token.
CharBpe make_bpe(const SpmVocab &vocab) {
    CharBpe bpe;
    std::vector<ScoredPiece> scored;
    for (std::size_t i = 0; i < vocab.pieces.size(); ++i) {
        const SpmVocab::Piece &piece = vocab.pieces[i];
        const auto id = static_cast<std::int32_t>(i);
        if (piece.type == Type::normal && !piece.text.empty())
            scored.push_back({piece.text, piece.score, id});
        if (piece.type == Type::byte && vocab.byte_fallback)
            bpe.set_byte(*byte_of_piece(piece.text), id);
        if (piece.type == Type::unknown) bpe.set_unknown(id, true);
    }
    add_scored_pieces(scored, static_cast<std::int32_t>(SpmVocab::max_pieces), vocab.source, bpe);
    return bpe;
}

} // namespace

std::unique_ptr<SpmBpe> make_spm_bpe(SpmVocab vocab) {
    if (vocab.pieces.empty())
        throw_error(ErrorKind::input, "{}: the vocabulary is empty", vocab.source);
    if (vocab.pieces.size() > SpmVocab::max_pieces)
        throw_error(ErrorKind::input, "{}: the vocabulary has {} pieces, expected at most {}",
                    vocab.source, vocab.pieces.size(), SpmVocab::max_pieces);
    for (std::size_t id = 0; id < vocab.pieces.size(); ++id) check_piece(vocab, id);

    SpmBpe::Parts parts;
    parts.bpe = make_bpe(vocab);
    Table table(vocab);
    for (std::size_t id = 0; id < vocab.pieces.size(); ++id)
        table.add_piece(static_cast<std::int32_t>(id), vocab.pieces[id]);
    parts.pieces = table.pieces();
    parts.added = AddedTokens(table.tokens());
    if (vocab.collapse_spaces) parts.normalizer.add_space_collapse();
    if (vocab.prefix_space) parts.normalizer.add_prefix(" ", vocab.prefix_everywhere);
    parts.normalizer.add_replacement(" ", std::string(PreTokenizer::metaspace_mark));
    parts.prefix = std::move(vocab.prefix);
    parts.suffix = std::move(vocab.suffix);
    parts.adds_leading_space = vocab.prefix_space;
    parts.source = std::move(vocab.source);
    return std::make_unique<SpmBpe>(std::move(parts));
}

} // namespace keel
