#pragma once

#include "eval/ab/verdicts/summary.hpp"

#include <string>
#include <vector>

namespace keel::ab {

// The answer of an experiment in plain words: one to five sentences, made of the planned verdicts.
// Each names its arms, the effects with their intervals, and the measured bytes. If nothing was
// decided, the first sentence says so.
std::vector<std::string> answer_sentences(const Summary &summary);

} // namespace keel::ab
