#include "text/tokenizer/char_bpe.hpp"

#include "base/error.hpp"
#include "text/utf8.hpp"

#include <algorithm>
#include <unordered_map>

namespace keel {

void CharBpe::set_symbol_only(char32_t c, std::int32_t symbol) {
    symbol_only_.resize(static_cast<std::size_t>(symbol - first_symbol_) + 1);
    symbol_only_.back() = c;
    set_character(c, symbol);
}

bool CharBpe::push_bytes(char32_t c, std::vector<std::int32_t> &out) const {
    std::string bytes;
    append_utf8(bytes, c);
    for (const char byte : bytes)
        if (byte_ids_[static_cast<unsigned char>(byte)] < 0) return false;
    for (const char byte : bytes) out.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    return true;
}

void CharBpe::encode(std::string_view word, MergeScratch &scratch,
                     std::vector<std::int32_t> &out) const {
    if (!whole_words_.empty()) {
        if (const auto it = whole_words_.find(word); it != whole_words_.end()) {
            out.push_back(it->second);
            return;
        }
    }
    scratch.symbols.clear();
    std::vector<std::int32_t> bytes;
    bool last_unknown = false;
    for (std::size_t at = 0; at < word.size();) {
        const char32_t c = next_code_point(word, at);
        const std::uint64_t *known = characters_.find(c);
        bytes.clear();
        if (known != nullptr) {
            scratch.push(static_cast<std::int32_t>(*known));
        } else if (push_bytes(c, bytes)) {
            for (const std::int32_t id : bytes) scratch.push(id);
        } else {
            if (unknown_ >= 0 && !(fuse_unknown_ && last_unknown)) scratch.push(unknown_);
            last_unknown = true;
            continue;
        }
        last_unknown = false;
    }
    merges_.merge(scratch);

    const auto &symbols = scratch.symbols;
    for (std::int32_t i = symbols.empty() ? -1 : 0; i >= 0;
         i = symbols[static_cast<std::size_t>(i)].next) {
        const std::int32_t id = symbols[static_cast<std::size_t>(i)].id;
        if (id < first_symbol_) {
            out.push_back(id);
            continue;
        }
        // this symbol is a character that was not merged and is not a token
        if (push_bytes(symbol_only_[static_cast<std::size_t>(id - first_symbol_)], out)) continue;
        if (unknown_ >= 0 && !(fuse_unknown_ && i > 0 && out.back() == unknown_))
            out.push_back(unknown_);
    }
}

namespace {

// Finds the id for a part of a piece. This is the id of a piece, or the symbol of a single
// character. The symbol is created if needed.
class Symbols {
  public:
    Symbols(std::span<const ScoredPiece> pieces, std::int32_t vocab_size, CharBpe &bpe)
        : bpe_(&bpe), next_(vocab_size) {
        bpe.set_first_symbol(vocab_size);
        ids_.reserve(pieces.size());
        for (const ScoredPiece &piece : pieces) {
            ids_.insert_or_assign(piece.text, piece.id);
            if (is_one_character(piece.text)) bpe.set_character(code_point(piece.text), piece.id);
        }
    }

    // -1: there is no symbol
    std::int32_t find(std::string_view text) {
        if (const auto it = ids_.find(text); it != ids_.end()) return it->second;
        if (!is_one_character(text)) return -1;
        bpe_->set_symbol_only(code_point(text), next_);
        ids_.emplace(text, next_);
        return next_++;
    }

  private:
    static bool is_one_character(std::string_view text) {
        return !text.empty() && utf8_length(text, 0) == text.size();
    }
    static char32_t code_point(std::string_view text) {
        std::size_t at = 0;
        return next_code_point(text, at);
    }

    CharBpe *bpe_;
    std::int32_t next_;
    std::unordered_map<std::string_view, std::int32_t> ids_;
};

} // namespace

void add_scored_pieces(std::span<const ScoredPiece> pieces, std::int32_t vocab_size,
                       std::string_view source, CharBpe &bpe) {
    // The code tries every way to split each piece in two. For Gemma, the largest vocabulary in
    // use, this takes 2e7 steps and gives 1.5 million rules.
    constexpr std::size_t max_work = 1'000'000'000;
    constexpr std::size_t max_rules = 8'000'000;
    std::size_t work = 0;
    for (const ScoredPiece &piece : pieces) {
        work += piece.text.size() * piece.text.size();
        if (piece.text.size() > max_work || work > max_work)
            throw_error(
                ErrorKind::input,
                "{}: the pieces are longer than those of any tokenizer, so the file is damaged",
                source);
    }
    // equal scores have equal ranks, so the leftmost pair merges first
    std::vector<float> scores;
    for (const ScoredPiece &piece : pieces) scores.push_back(piece.score);
    std::sort(scores.begin(), scores.end(), std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());

    Symbols symbols(pieces, vocab_size, bpe);
    for (const ScoredPiece &piece : pieces) {
        const auto rank = static_cast<std::uint32_t>(
            std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>()) -
            scores.begin());
        for (std::size_t cut = utf8_length(piece.text, 0); cut < piece.text.size();
             cut += utf8_length(piece.text, cut)) {
            const std::int32_t left = symbols.find(piece.text.substr(0, cut));
            if (left < 0) continue;
            const std::int32_t right = symbols.find(piece.text.substr(cut));
            if (right >= 0) bpe.merges().add(left, right, rank, piece.id);
        }
        if (bpe.merge_count() > max_rules)
            throw_error(ErrorKind::input,
                        "{}: found more than {} merges; no tokenizer has that number, so the file "
                        "is damaged",
                        source, max_rules);
    }
}

} // namespace keel
