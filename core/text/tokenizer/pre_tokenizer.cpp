#include "text/tokenizer/pre_tokenizer.hpp"

#include <algorithm>
#include <string>

namespace keel {

namespace {

constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Part {
    TextRange range;
    bool is_match;
};

// Splits the whole text into parts: the matches, and the text between the matches.
std::vector<Part> all_parts(std::size_t text_bytes, const std::vector<TextRange> &matches,
                            bool invert) {
    std::vector<Part> parts;
    std::size_t at = 0;
    for (const TextRange &match : matches) {
        if (at != match.begin) parts.push_back({{at, match.begin}, invert});
        parts.push_back({match, !invert});
        at = match.end;
    }
    if (at != text_bytes) parts.push_back({{at, text_bytes}, invert});
    return parts;
}

// Joins neighbouring parts. With merged_with_previous, a match joins the part before it. With
// contiguous, a part joins the part before it if both are of the same kind.
std::vector<TextRange> join(const std::vector<Part> &parts, SplitBehavior behavior) {
    std::vector<TextRange> out;
    bool previous_match = false;
    for (const Part &part : parts) {
        const bool joins = behavior == SplitBehavior::contiguous ? part.is_match == previous_match
                                                                 : part.is_match && !previous_match;
        if (joins && !out.empty())
            out.back().end = part.range.end;
        else
            out.push_back(part.range);
        previous_match = part.is_match;
    }
    return out;
}

std::vector<TextRange> join_with_next(const std::vector<Part> &parts) {
    std::vector<TextRange> out;
    bool previous_match = false;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (part->is_match && !previous_match && !out.empty())
            out.back().begin = part->range.begin;
        else
            out.push_back(part->range);
        previous_match = part->is_match;
    }
    std::reverse(out.begin(), out.end());
    return out;
}

} // namespace

std::vector<TextRange> split_at_matches(std::size_t text_bytes,
                                        const std::vector<TextRange> &matches,
                                        SplitBehavior behavior, bool invert) {
    const std::vector<Part> parts = all_parts(text_bytes, matches, invert);
    std::vector<TextRange> out;
    switch (behavior) {
    case SplitBehavior::removed:
    case SplitBehavior::isolated:
        for (const Part &part : parts)
            if (behavior == SplitBehavior::isolated || !part.is_match) out.push_back(part.range);
        break;
    case SplitBehavior::merged_with_previous:
    case SplitBehavior::contiguous: out = join(parts, behavior); break;
    case SplitBehavior::merged_with_next: out = join_with_next(parts); break;
    }
    std::erase_if(out, [](const TextRange &range) { return range.begin == range.end; });
    return out;
}

void PreTokenizer::add_split(SplitRegex pattern, SplitBehavior behavior, bool invert) {
    steps_.push_back({std::move(pattern), behavior, invert});
}

void PreTokenizer::set_byte_level(bool add_prefix_space, bool use_regex) {
    add_prefix_space_ = add_prefix_space;
    gpt2_.clear();
    if (use_regex)
        gpt2_.push_back({SplitRegex(gpt2_pattern, SplitRegex::Syntax::regex, "GPT-2's pattern"),
                         SplitBehavior::isolated, false});
}

void PreTokenizer::set_metaspace(MetaspacePrefix prefix, bool split) {
    metaspace_ = true;
    metaspace_prefix_ = prefix;
    metaspace_split_ = split;
}

void PreTokenizer::byte_level(std::string_view piece, Place place, RegexScratch &scratch,
                              const std::function<void(std::string_view)> &word) const {
    std::string prefixed;
    if (add_prefix_space_ && !piece.starts_with(' ') && !(place.at_start && place.continues)) {
        prefixed.reserve(piece.size() + 1);
        prefixed += ' ';
        prefixed += piece;
        piece = prefixed;
    }
    if (gpt2_.empty()) {
        word(piece);
        return;
    }
    std::vector<TextRange> matches;
    gpt2_.front().pattern.find_all(piece, scratch, matches);
    for (const TextRange &range :
         split_at_matches(piece.size(), matches, SplitBehavior::isolated, false))
        word(piece.substr(range.begin, range.end - range.begin));
}

void PreTokenizer::metaspace(std::string_view piece, Place place,
                             const std::function<void(std::string_view)> &word) const {
    std::string marked;
    marked.reserve(piece.size() + piece.size() / 4);
    for (const char c : piece)
        if (c == ' ')
            marked += metaspace_mark;
        else
            marked += c;
    const bool wanted = metaspace_prefix_ == MetaspacePrefix::always ||
                        (metaspace_prefix_ == MetaspacePrefix::first && place.at_start);
    if (wanted && !(place.at_start && place.continues) && !marked.starts_with(metaspace_mark))
        marked.insert(0, metaspace_mark);
    const std::string_view text = marked;
    std::size_t begin = 0;
    while (metaspace_split_ && begin < text.size()) {
        const std::size_t mark = text.find(metaspace_mark, begin + 1);
        if (mark == std::string_view::npos) break;
        word(text.substr(begin, mark - begin));
        begin = mark;
    }
    if (begin < text.size()) word(text.substr(begin));
}

void PreTokenizer::split(std::string_view text, Place place, RegexScratch &scratch,
                         const std::function<void(std::string_view)> &word) const {
    if (text.empty()) return;
    std::vector<std::string_view> pieces{text};
    std::vector<std::string_view> next;
    std::vector<TextRange> matches;
    for (const Step &step : steps_) {
        next.clear();
        for (const std::string_view piece : pieces) {
            step.pattern.find_all(piece, scratch, matches);
            for (const TextRange &range :
                 split_at_matches(piece.size(), matches, step.behavior, step.invert))
                next.push_back(piece.substr(range.begin, range.end - range.begin));
        }
        pieces.swap(next);
    }
    for (const std::string_view piece : pieces) {
        const Place at{place.at_start && piece.data() == text.data(), place.continues};
        if (metaspace_)
            metaspace(piece, at, word);
        else
            byte_level(piece, at, scratch, word);
    }
}

} // namespace keel
