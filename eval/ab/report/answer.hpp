#pragma once

#include "eval/ab/verdicts/summary.hpp"

#include <string>
#include <vector>

namespace keel::ab {

// The answer of an experiment in plain words: one to five sentences, made of the planned verdicts.
// Each sentence names the arms, the effects with the intervals, and the measured bytes. If no
// contrast was decided, the first sentence reports this.
std::vector<std::string> answer_sentences(const Summary &summary);

} // namespace keel::ab
