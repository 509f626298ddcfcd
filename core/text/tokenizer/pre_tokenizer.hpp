#pragma once

#include "text/tokenizer/split_regex.hpp"

#include <functional>
#include <string_view>
#include <vector>

namespace keel {

// What to do with a match when text is split at a pattern. The text between matches is always kept.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Where Metaspace adds its mark before a text that does not begin with a space.
enum class MetaspacePrefix { never, first, always };

// Splits text into words. BPE merges only inside a word. The class has any number of Split steps,
// then optionally GPT-2's ByteLevel step or SentencePiece's Metaspace step.
class PreTokenizer {
  public:
    // SentencePiece's mark for a space.
    static constexpr std::string_view metaspace_mark = "\xE2\x96\x81"; // U+2581

    // If `invert` is true, the text between the matches is treated as the matches.
    void add_split(SplitRegex pattern, SplitBehavior behavior, bool invert);
    // `add_prefix_space`: a space is added before a piece that does not begin with a space.
    // `use_regex`: text is split by GPT-2's pattern.
    void set_byte_level(bool add_prefix_space, bool use_regex);
    // Replaces spaces by marks. `prefix`: where a mark is added (first: at the start of a whole
    // text; always: before each piece). `split`: true if text is split before each mark.
    void set_metaspace(MetaspacePrefix prefix, bool split);

    struct Place {
        bool at_start = false;  // the text is at the start of the whole text
        bool continues = false; // the whole text continues other tokens
    };
    // Calls `word` for each word of valid UTF-8 text, in order. The view is valid only during the
    // call.
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
    std::vector<Step> gpt2_; // has 0 or 1 elements
    bool add_prefix_space_ = false;
    bool metaspace_ = false;
    MetaspacePrefix metaspace_prefix_ = MetaspacePrefix::never;
    bool metaspace_split_ = false;
};

// Returns the pieces of a text after a split at the given matches. No piece is empty. Public for
// its tests.
std::vector<TextRange> split_at_matches(std::size_t text_bytes,
                                        const std::vector<TextRange> &matches,
                                        SplitBehavior behavior, bool invert);

} // namespace keel
