#pragma once

#include "text/text_range.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace keel {

// Canonical composition (NFC), with compatibility characters folded first if `compatibility` (NFKC). Takes and gives
// valid UTF-8. Throws Error (resource) without memory.
std::string compose_unicode(std::string_view text, bool compatibility);

// What a tokenizer does to a text before it looks for words: steps in the order of its file.
class TextNormalizer {
  public:
    void add_composition(bool compatibility) { steps_.push_back(Compose{compatibility}); }
    // All places of `from` (not empty), which is plain text, become `to`.
    void add_replacement(std::string from, std::string to) {
        steps_.push_back(Replace{std::move(from), std::move(to)});
    }
    // Before each stretch of text between special tokens, unless it goes on behind tokens that are already there.
    void add_prefix(std::string prefix) { steps_.push_back(Prefix{std::move(prefix)}); }

    // Whether the text could come out changed.
    bool may_change(std::string_view text) const noexcept;
    // The text after all steps. `ranges` (ascending, disjoint) are ranges of the text before and of the result after.
    std::string apply(std::string_view text, bool prefix, std::vector<TextRange> &ranges) const;
    std::string apply(std::string_view text, bool prefix) const {
        std::vector<TextRange> none;
        return apply(text, prefix, none);
    }

  private:
    struct Compose {
        bool compatibility;
    };
    struct Replace {
        std::string from, to;
    };
    struct Prefix {
        std::string text;
    };
    std::vector<std::variant<Compose, Replace, Prefix>> steps_;
};

} // namespace keel
