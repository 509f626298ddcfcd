#pragma once

#include "eval/stats/draws.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Recall documents: facts at the beginning, then filler, then questions. The plain ones use the
// words on which models/tiny was trained.
namespace keel::ab {

// Filler text between the facts: pieces of a text in random order, with spaces for newlines.
class Filler {
  public:
    // Cuts `text` at lines "<|endoftext|>" if it has them, else at newlines. Throws Error(input)
    // with `name` if nothing is left.
    Filler(std::string_view text, const std::string &name);

    // At most `bytes` bytes of filler. It ends after a sentence, or after a word, which then gets a
    // full stop. At most one more word would have fit.
    std::string make(SplitMix64 &random, size_t bytes) const;

  private:
    std::vector<std::string> pieces_;
};

// A question, and the first words of its answer. Both are given to the model.
struct RecallWords {
    std::string question; // "What is the pass key?"
    std::string opening;  // " The pass key is "
};

struct RecallQuestion {
    RecallWords plain;    // for plain text
    RecallWords chat;     // for a model that was trained to answer questions
    std::string expected; // "12345"
    double depth = 0;     // place of the answer in the context, 0 to 1
};

struct RecallDocument {
    std::string context; // ends in a newline
    std::vector<RecallQuestion> questions;
};

// A number of five digits in `bytes` of filler, at `depth` (0 to 1).
RecallDocument make_passkey(SplitMix64 random, const Filler &filler, size_t bytes, double depth);

// Two to six facts in `bytes` of filler. There is one question for each fact, in another order.
RecallDocument make_facts(SplitMix64 random, const Filler &filler, size_t bytes);

} // namespace keel::ab
