#pragma once

#include "text/split_regex.hpp"

#include <functional>
#include <string_view>
#include <vector>

namespace keel {

// What becomes of a match when text is split at a pattern; the text between matches always stays.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Cuts text into words, within which BPE merges: any number of Split steps, then GPT-2's ByteLevel step.
class PreTokenizer {
  public:
    // invert: the text between the matches counts as the match.
    void add_split(SplitRegex pattern, SplitBehavior behavior, bool invert);
    // add_prefix_space: a piece that does not begin with a space gets one. use_regex: split by GPT-2's own pattern.
    void set_byte_level(bool add_prefix_space, bool use_regex);

    // Calls `word` for each word of valid UTF-8 text, in order; the view holds during the call only.
    void split(std::string_view text, RegexScratch &scratch,
               const std::function<void(std::string_view)> &word) const;

  private:
    struct Step {
        SplitRegex pattern;
        SplitBehavior behavior;
        bool invert;
    };
    void byte_level(std::string_view piece, RegexScratch &scratch,
                    const std::function<void(std::string_view)> &word) const;

    std::vector<Step> steps_;
    std::vector<Step> gpt2_; // none or one
    bool add_prefix_space_ = false;
};

// The pieces that a split leaves of `text`, given the pattern's matches; no piece is empty. Apart for its tests.
std::vector<TextRange> split_at_matches(std::size_t text_bytes, const std::vector<TextRange> &matches,
                                        SplitBehavior behavior, bool invert);

} // namespace keel
