#pragma once

#include "eval/ab/plan/config.hpp"

#include <span>
#include <string>
#include <string_view>

namespace keel {

// 0 to 1: an answer against what was expected. Nothing expected: 0.
double ab_answer_score(AbAnswerMetric metric, std::string_view answer,
                       std::span<const std::string> expected);

// Whether an answer has the words of one of those expected, in a row; upper and lower case,
// punctuation, articles and what stands around them apart.
bool ab_contains_words(std::string_view answer, std::span<const std::string> expected);

// The first sentence of a line, as the recall documents end theirs: " 12345.\nWhat" is "12345".
std::string ab_first_sentence(std::string_view answer);

} // namespace keel
