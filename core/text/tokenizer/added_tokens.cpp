#include "text/tokenizer/added_tokens.hpp"

#include "text/utf8.hpp"

#include <algorithm>

namespace keel {

namespace {

// Returns the offset of the character that ends at `offset` (> 0).
std::size_t previous_character(std::string_view text, std::size_t offset) {
    do {
        --offset;
    } while (offset > 0 && (static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80);
    return offset;
}

std::size_t space_begin_before(std::string_view text, std::size_t offset) {
    while (offset > 0) {
        const std::size_t before = previous_character(text, offset);
        std::size_t at = before;
        if (!is_unicode_space(next_code_point(text, at))) break;
        offset = before;
    }
    return offset;
}

std::size_t space_end_after(std::string_view text, std::size_t offset) {
    while (offset < text.size()) {
        std::size_t at = offset;
        if (!is_unicode_space(next_code_point(text, at))) break;
        offset = at;
    }
    return offset;
}

enum class Overlap { none, part, whole };

// Returns whether `range` is completely, partly or not at all inside one of the ranges.
Overlap overlap_with(std::span<const TextRange> ranges, TextRange range) {
    // the first range that ends after the start of `range`
    const auto it = std::partition_point(ranges.begin(), ranges.end(),
                                         [&](TextRange r) { return r.end <= range.begin; });
    if (it == ranges.end() || it->begin >= range.end) return Overlap::none;
    return it->begin <= range.begin && it->end >= range.end ? Overlap::whole : Overlap::part;
}

// Computes the parts of `ranges` inside `window`, relative to the start of the window.
void ranges_within(std::span<const TextRange> ranges, TextRange window,
                   std::vector<TextRange> &out) {
    out.clear();
    auto it = std::partition_point(ranges.begin(), ranges.end(),
                                   [&](TextRange r) { return r.end <= window.begin; });
    for (; it != ranges.end() && it->begin < window.end; ++it)
        out.push_back({std::max(it->begin, window.begin) - window.begin,
                       std::min(it->end, window.end) - window.begin});
}

} // namespace

void AddedTokens::Trie::add(std::string_view content, std::int32_t index) {
    if (ends.empty()) ends.push_back(-1);
    std::uint64_t node = 0;
    for (const char c : content) {
        const std::uint64_t key = (node << 8) | static_cast<unsigned char>(c);
        if (const std::uint64_t *next = edges.find(key)) {
            node = *next;
        } else {
            node = ends.size();
            edges.put(key, node);
            ends.push_back(-1);
        }
    }
    ends[node] = index;
}

std::int32_t AddedTokens::Trie::longest(std::string_view text, std::size_t offset,
                                        std::size_t &end) const {
    std::int32_t found = -1;
    std::uint64_t node = 0;
    for (std::size_t i = offset; i < text.size(); ++i) {
        const std::uint64_t *next = edges.find((node << 8) | static_cast<unsigned char>(text[i]));
        if (next == nullptr) break;
        node = *next;
        if (ends[node] >= 0) {
            found = ends[node];
            end = i + 1;
        }
    }
    return found;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
    bool any_single_word = false;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
        const AddedToken &token = tokens_[i];
        const auto index = static_cast<std::int32_t>(i);
        if (token.normalized)
            normalized_.add(token.pattern.empty() ? token.content : token.pattern, index);
        else
            plain_.add(token.content, index);
        by_content_.emplace(token.content, index);
        any_single_word = any_single_word || token.single_word;
    }
    // Rust's \w: Oniguruma's, and the two joiners
    if (any_single_word)
        word_.emplace("(?:\\w|\\x{200C}|\\x{200D})", SplitRegex::Syntax::regex,
                      "added_tokens: single_word");
}

std::optional<std::int32_t> AddedTokens::find(std::string_view content) const {
    const auto it = by_content_.find(std::string(content));
    if (it == by_content_.end()) return std::nullopt;
    return tokens_[static_cast<std::size_t>(it->second)].id;
}

bool AddedTokens::is_whole_word(std::string_view text, TextRange match,
                                RegexScratch &scratch) const {
    std::size_t end = 0;
    if (match.begin > 0 &&
        word_->match_at(text, previous_character(text, match.begin), scratch, end))
        return false;
    return match.end == text.size() || !word_->match_at(text, match.end, scratch, end);
}

void AddedTokens::pass(const Trie &trie, std::string_view text, bool at_start,
                       std::span<const TextRange> plain, RegexScratch &scratch,
                       std::vector<Piece> &out) const {
    std::size_t begin = 0; // start of the text that is not output yet
    std::size_t at = 0;
    while (at < text.size()) {
        TextRange match{at, at};
        const std::int32_t index = trie.longest(text, at, match.end);
        if (index < 0) {
            ++at;
            continue;
        }
        const AddedToken &token = tokens_[static_cast<std::size_t>(index)];
        if (token.special) {
            const Overlap overlap = overlap_with(plain, match);
            // If a match crosses the border of a plain range, it does not count. Then the search
            // continues at the next byte, because a token can begin after the border.
            at = overlap == Overlap::part ? match.begin + 1 : match.end;
            if (overlap != Overlap::none) continue;
        }
        at = match.end;
        if (token.single_word && !is_whole_word(text, match, scratch)) continue;
        if (token.lstrip) match.begin = std::max(space_begin_before(text, match.begin), begin);
        if (token.rstrip) match.end = space_end_after(text, match.end);
        if (begin < match.begin)
            out.push_back({text.substr(begin, match.begin - begin), -1, at_start && begin == 0});
        out.push_back({text.substr(match.begin, match.end - match.begin), token.id, false});
        begin = match.end;
    }
    if (begin < text.size()) out.push_back({text.substr(begin), -1, at_start && begin == 0});
}

AddedTokens::Cut AddedTokens::split(std::string_view text, std::span<const TextRange> plain,
                                    bool continues, const TextNormalizer &normalizer,
                                    RegexScratch &scratch) const {
    Cut cut;
    std::vector<Piece> rough;
    pass(plain_, text, true, plain, scratch, rough);
    std::vector<TextRange> ranges;
    for (const Piece &piece : rough) {
        if (piece.id >= 0) {
            cut.pieces.push_back(piece);
            continue;
        }
        const auto begin = static_cast<std::size_t>(piece.text.data() - text.data());
        ranges_within(plain, {begin, begin + piece.text.size()}, ranges);
        std::string_view stretch = piece.text;
        if (normalizer.may_change(stretch)) {
            cut.normalized.push_back(
                normalizer.apply(stretch, {piece.at_start, continues}, ranges));
            stretch = cut.normalized.back();
        }
        pass(normalized_, stretch, piece.at_start, ranges, scratch, cut.pieces);
    }
    return cut;
}

} // namespace keel
