#pragma once

#include "eval/ab/plan/config.hpp"

#include <span>
#include <string>
#include <string_view>

namespace keel::ab {

// Scores an answer from 0 to 1 against the expected answers. 0 if `expected` is empty.
double answer_score(AnswerMetric metric, std::string_view answer,
                    std::span<const std::string> expected);

// Does the answer contain the words of one of the expected answers, one after the other? Ignores
// case, punctuation and articles. Other words may stand before and after them.
bool contains_words(std::string_view answer, std::span<const std::string> expected);

// The first sentence of the first line, because the recall documents end answers with a full stop:
// " 12345.\nWhat" gives "12345".
std::string first_sentence(std::string_view answer);

} // namespace keel::ab
