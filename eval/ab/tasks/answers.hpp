#pragma once

#include "eval/ab/plan/config.hpp"

#include <span>
#include <string>
#include <string_view>

namespace keel::ab {

// Scores an answer from 0 to 1 against the expected answers. The score is 0 if `expected` is empty.
double answer_score(AnswerMetric metric, std::string_view answer,
                    std::span<const std::string> expected);

// True if the answer contains all words of one expected answer, in this order and with no further
// word between them. Ignores case, punctuation and the articles "a", "an" and "the". The answer can
// have more words before and after the expected answer.
bool contains_words(std::string_view answer, std::span<const std::string> expected);

// Returns the first sentence of the first line. In the documents of the tasks "passkey" and
// "facts", each answer ends with a full stop. So the text after the full stop is not part of the
// answer. For example, " 12345.\nWhat" gives "12345".
std::string first_sentence(std::string_view answer);

} // namespace keel::ab
