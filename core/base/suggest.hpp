#pragma once

#include <span>
#include <string>
#include <string_view>

namespace keel {

// The candidate nearest to `word` by Damerau-Levenshtein distance, if it is near enough to be a
// typing error (at most a third of the word's length, at least 1); else an empty string. Ties go to
// the earlier candidate.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

// "; did you mean 'window'?" or an empty string: ready to be put at the end of an error.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

} // namespace keel
