#pragma once

#include <span>
#include <string>
#include <string_view>

namespace keel {

// The candidate nearest to `word` by Damerau-Levenshtein distance. Returns an empty string if the
// distance is too large for a typing error: the limit is a third of the word's length, at least 1.
// If two candidates are equally near, the earlier one is returned.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

// Returns "; did you mean 'window'?", or an empty string if no candidate is near. The result is
// meant to be appended to an error message.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

} // namespace keel
