#pragma once

#include <span>
#include <string>
#include <string_view>

namespace keel {

// Returns the candidate nearest to `word` by Damerau-Levenshtein distance. If the distance is above
// a third of the word's length and above 1, it is too large for a typing error. The function then
// returns an empty string. If two candidates are equally near, the function returns the earlier
// one.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

// Returns "; did you mean 'window'?", or an empty string if no candidate is near. The result is
// meant to be appended to an error message.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

} // namespace keel
