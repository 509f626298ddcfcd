#include "text/tokenizer/piece_table.hpp"

#include <algorithm>

namespace keel {

void PieceTable::assign(std::vector<Entry> entries) {
    std::sort(entries.begin(), entries.end(),
              [](const Entry &a, const Entry &b) { return a.id < b.id; });
    const std::size_t count = entries.empty() ? 0 : static_cast<std::size_t>(entries.back().id) + 1;
    blob_.clear();
    kinds_.assign(count, TokenKind::unused);
    begin_.assign(1, 0);
    begin_.reserve(count + 1);
    for (const Entry &entry : entries) {
        const auto id = static_cast<std::size_t>(entry.id);
        begin_.resize(id + 1, blob_.size()); // unused ids are empty
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

void PieceTable::count(TokenizerInfo &info) const noexcept {
    for (const TokenKind kind : kinds_) {
        info.ordinary_tokens += kind == TokenKind::ordinary ? 1 : 0;
        info.added_tokens += kind == TokenKind::added ? 1 : 0;
        info.special_tokens += kind == TokenKind::special ? 1 : 0;
    }
}

} // namespace keel
