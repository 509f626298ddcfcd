#pragma once

#include "text/tokenizer/split_regex.hpp"

#include <functional>
#include <string_view>
#include <vector>

namespace keel {

// What becomes of a match when text is split at a pattern; the text between matches always stays.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Where Metaspace puts its mark before a text that does not begin with a space.
enum class MetaspacePrefix { never, first, always };

// Cuts text into words, within which BPE merges: any number of Split steps, then GPT-2's ByteLevel
// step or SentencePiece's Metaspace step, if there is one.
class PreTokenizer {
  public:
    // SentencePiece's mark for a space.
    static constexpr std::string_view metaspace_mark = "\xE2\x96\x81"; // U+2581

    // invert: the text between the matches counts as the match.
    void add_split(SplitRegex pattern, SplitBehavior behavior, bool invert);
    // add_prefix_space: a piece that does not begin with a space gets one. use_regex: split by
    // GPT-2's own pattern.
    void set_byte_level(bool add_prefix_space, bool use_regex);
    // Spaces become marks. prefix: first, only the beginning of a whole text; always, each piece.
    // split: before marks.
    void set_metaspace(MetaspacePrefix prefix, bool split);

    struct Place {
        bool at_start = false;  // the text is the beginning of a whole one
        bool continues = false; // which itself goes on behind other tokens
    };
    // Calls `word` for each word of valid UTF-8 text, in order; the view holds during the call
    // only.
    void split(std::string_view text, Place place, RegexScratch &scratch,
               const std::function<void(std::string_view)> &word) const;

  private:
    struct Step {
        SplitRegex pattern;
        SplitBehavior behavior;
        bool invert;
    };
    void byte_level(std::string_view piece, Place place, RegexScratch &scratch,
                    const std::function<void(std::string_view)> &word) const;
    void metaspace(std::string_view piece, Place place,
                   const std::function<void(std::string_view)> &word) const;

    std::vector<Step> steps_;
    std::vector<Step> gpt2_; // none or one
    bool add_prefix_space_ = false;
    bool metaspace_ = false;
    MetaspacePrefix metaspace_prefix_ = MetaspacePrefix::never;
    bool metaspace_split_ = false;
};

// The pieces that a split leaves of `text`, given the pattern's matches; no piece is empty. Apart
// for its tests.
std::vector<TextRange> split_at_matches(std::size_t text_bytes,
                                        const std::vector<TextRange> &matches,
                                        SplitBehavior behavior, bool invert);

} // namespace keel
