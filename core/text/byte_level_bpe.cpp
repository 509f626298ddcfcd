#include "text/byte_level_bpe.hpp"

#include <algorithm>

namespace keel {

void PieceTable::assign(std::vector<Entry> entries) {
    std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) { return a.id < b.id; });
    const std::size_t count = entries.empty() ? 0 : static_cast<std::size_t>(entries.back().id) + 1;
    blob_.clear();
    kinds_.assign(count, TokenKind::unused);
    begin_.assign(1, 0);
    begin_.reserve(count + 1);
    for (const Entry &entry : entries) {
        const auto id = static_cast<std::size_t>(entry.id);
        begin_.resize(id + 1, blob_.size()); // ids that are not used are empty
        blob_ += entry.bytes;
        begin_.push_back(blob_.size());
        kinds_[id] = entry.kind;
    }
}

std::string_view PieceTable::bytes(std::int32_t id) const noexcept {
    if (id < 0 || id >= size()) return {};
    const auto i = static_cast<std::size_t>(id);
    return std::string_view(blob_).substr(begin_[i], begin_[i + 1] - begin_[i]);
}

TokenKind PieceTable::kind(std::int32_t id) const noexcept {
    return id < 0 || id >= size() ? TokenKind::unused : kinds_[static_cast<std::size_t>(id)];
}

void ByteLevelBpe::encode_valid(const Input &input, std::vector<std::int32_t> &out) const {
    if (input.add_special) out = parts_.prefix;
    RegexScratch regex_scratch(input.text.size());
    Bpe::Scratch bpe_scratch;
    std::vector<AddedTokens::Piece> pieces;
    parts_.added.split(input.text, input.plain, regex_scratch, pieces);
    for (const AddedTokens::Piece &piece : pieces) {
        if (piece.id >= 0) {
            out.push_back(piece.id);
            continue;
        }
        parts_.pre_tokenizer.split(piece.text, regex_scratch,
                                   [&](std::string_view word) { parts_.bpe.encode(word, bpe_scratch, out); });
    }
    if (input.add_special) out.insert(out.end(), parts_.suffix.begin(), parts_.suffix.end());
}

TokenizerInfo ByteLevelBpe::info() const {
    TokenizerInfo info;
    info.kind = "byte-level BPE";
    info.source = parts_.source;
    info.merges = parts_.bpe.merge_count();
    for (std::int32_t id = 0; id < vocab_size(); ++id) {
        const TokenKind k = kind(id);
        info.ordinary_tokens += k == TokenKind::ordinary ? 1 : 0;
        info.added_tokens += k == TokenKind::added ? 1 : 0;
        info.special_tokens += k == TokenKind::special ? 1 : 0;
    }
    return info;
}

} // namespace keel
