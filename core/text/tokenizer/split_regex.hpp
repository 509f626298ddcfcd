#pragma once

#include "text/tokenizer/text_range.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace keel {

// Memory for matching. Each encode() makes it once and uses it for all its matches, on one thread.
// It also has the time limit that stops a pattern from a malicious file: all matches of one
// encode() may take 5 s plus 0.1 ms per byte of text.
class RegexScratch {
  public:
    explicit RegexScratch(std::size_t text_bytes);
    ~RegexScratch();
    RegexScratch(const RegexScratch &) = delete;
    RegexScratch &operator=(const RegexScratch &) = delete;

  private:
    friend class SplitRegex;
    pcre2_real_match_data_8 *match_data_ = nullptr;
    pcre2_real_match_context_8 *context_ = nullptr;
    std::chrono::steady_clock::time_point deadline_;
    unsigned attempts_ = 0;
};

// A regular expression of a tokenizer.json, matched with PCRE2 (UTF; with JIT if the machine has
// it).
//
// The patterns are written for Oniguruma with Ruby's syntax, and PCRE2 reads some of this syntax
// differently. So the pattern is translated: \s, \d, \w and \b get Oniguruma's Unicode meaning, ^
// and $ are line anchors, {,n} is {0,n}. Syntax that has another meaning in PCRE2 and does not
// occur in tokenizers is refused (nested classes, &&, POSIX brackets, \h, \K, (?m), back
// references, ...). The compiled pattern is immutable. Matching is thread-safe if each thread has
// its own scratch.
class SplitRegex {
  public:
    enum class Syntax { regex, literal };

    // `place`: the file and the place in its JSON, for errors (kind input). `pattern` must be valid
    // UTF-8.
    SplitRegex(std::string_view pattern, Syntax syntax, std::string place);

    // Finds all matches in order, without overlap. As in Oniguruma, an empty match counts unless it
    // begins at the end of the previous match. `subject` must be valid UTF-8. Throws Error(input)
    // if the pattern exceeds its limits.
    void find_all(std::string_view subject, RegexScratch &scratch,
                  std::vector<TextRange> &matches) const;

    // Returns true if a match begins exactly at `offset`. Then sets `end` to the end of the match.
    bool match_at(std::string_view subject, std::size_t offset, RegexScratch &scratch,
                  std::size_t &end) const;

  private:
    struct Free {
        void operator()(pcre2_real_code_8 *code) const noexcept;
    };
    [[noreturn]] void too_expensive() const;

    std::unique_ptr<pcre2_real_code_8, Free> code_;
    std::string place_;
};

// Only translates a pattern (see SplitRegex). For tests. Throws Error(input) with `place`.
std::string oniguruma_to_pcre2(std::string_view pattern, std::string_view place);

} // namespace keel
