#pragma once

#include "text/tokenizer/text_range.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Canonical composition (NFC), with compatibility characters folded first if `compatibility`
// (NFKC). Takes and gives valid UTF-8. Throws Error (resource) without memory.
std::string compose_unicode(std::string_view text, bool compatibility);

// What a tokenizer does to a text before it looks for words: steps in the order of its file.
class TextNormalizer {
  public:
    void add_composition(bool compatibility);
    // All places of `from` (not empty), which is plain text, become `to`.
    void add_replacement(std::string from, std::string to);
    // Before each stretch of text between special tokens, or, if not `everywhere`, only at the
    // beginning of a text; never where that beginning goes on behind tokens that are already there.
    void add_prefix(std::string prefix, bool everywhere = true);
    // Runs of spaces become one; none stays at the ends.
    void add_space_collapse();

    // Where the text stands.
    struct Place {
        bool at_start = true;   // nothing of a whole text stands before it
        bool continues = false; // which itself goes on behind other tokens
    };

    // Whether the text could come out changed.
    bool may_change(std::string_view text) const noexcept;
    // The text after all steps. `ranges` (ascending, disjoint) are ranges of the text before and of
    // the result after. Throws Error (input) where it becomes more than 16 times as long or 2 GiB.
    std::string apply(std::string_view text, Place place, std::vector<TextRange> &ranges) const;
    std::string apply(std::string_view text) const {
        std::vector<TextRange> none;
        return apply(text, {}, none);
    }

  private:
    struct Step {
        enum class Kind { compose, compose_compatibility, replace, prefix, collapse };
        Kind kind;
        std::string from, to;   // replace; prefix: the prefix is `to`
        bool everywhere = true; // prefix
    };
    // A part of the text that is normalized by itself.
    struct Stretch {
        std::string text;
        bool in_range;
    };
    static void collapse(std::vector<Stretch> &stretches);
    static bool is_empty(const std::vector<Stretch> &stretches) noexcept;

    std::vector<Step> steps_;
};

} // namespace keel
