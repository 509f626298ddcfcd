#pragma once

#include "text/tokenizer/text_range.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Composes a text canonically (NFC). With `compatibility`, compatibility characters are folded
// first (NFKC). Input and output are valid UTF-8. Throws Error(resource) if memory is short.
std::string compose_unicode(std::string_view text, bool compatibility);

// The changes that a tokenizer makes to a text before it searches for words, in the order of the
// tokenizer's file.
class TextNormalizer {
  public:
    void add_composition(bool compatibility);
    // Replaces all occurrences of `from` by `to`. `from` is plain text and not empty.
    void add_replacement(std::string from, std::string to);
    // Adds a prefix before each part of text between special tokens. If `everywhere` is false, adds
    // the prefix only at the start of a text. A text that continues tokens in the cache gets no
    // prefix at its start.
    void add_prefix(std::string prefix, bool everywhere = true);
    // Replaces runs of spaces by one space, and removes spaces at both ends.
    void add_space_collapse();

    // The place of a text within the whole text that is encoded.
    struct Place {
        bool at_start = true;   // true if no text comes before it in the whole text
        bool continues = false; // true if the whole text continues other tokens
    };

    // Returns true if apply() can change the text.
    bool may_change(std::string_view text) const noexcept;
    // Returns the text after all steps. `ranges` (ascending, disjoint) are ranges of the input. The
    // function changes them to ranges of the result. Throws Error(input) if the text becomes more
    // than 16 times as long, or reaches 2 GiB.
    std::string apply(std::string_view text, Place place, std::vector<TextRange> &ranges) const;
    std::string apply(std::string_view text) const {
        std::vector<TextRange> none;
        return apply(text, {}, none);
    }

  private:
    struct Step {
        enum class Kind { compose, compose_compatibility, replace, prefix, collapse };
        Kind kind;
        std::string from, to;   // for replace; for prefix, `to` is the prefix
        bool everywhere = true; // for prefix
    };
    // A part of the text that is normalized on its own.
    struct Stretch {
        std::string text;
        bool in_range;
    };
    static void collapse(std::vector<Stretch> &stretches);
    static bool is_empty(const std::vector<Stretch> &stretches) noexcept;

    std::vector<Step> steps_;
};

} // namespace keel
