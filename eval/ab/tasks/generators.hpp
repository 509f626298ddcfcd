#pragma once

#include "eval/stats/draws.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Recall documents: facts stated early, filler, questions at the end. Plain ones are in the words
// that models/tiny was trained on.
namespace keel {

// Text that stands between what is to be remembered: pieces of a text in random order, newlines
// made spaces.
class AbFiller {
  public:
    // `text` is cut at lines "<|endoftext|>" if it has such, else at newlines. Throws Error(input)
    // naming `name` if nothing is left.
    AbFiller(std::string_view text, const std::string &name);

    // So many bytes at most, ending behind a sentence or a word, which is then made the end of one:
    // no more than a word is missing.
    std::string make(AbDraws &random, size_t bytes) const;

  private:
    std::vector<std::string> pieces_;
};

// A question, and the first words of its answer, which the model is given.
struct AbRecallWords {
    std::string question; // "What is the pass key?"
    std::string opening;  // " The pass key is "
};

struct AbRecallQuestion {
    AbRecallWords plain;  // in plain text
    AbRecallWords chat;   // to a model that was trained to answer
    std::string expected; // "12345"
    double depth = 0;     // where in the context the answer stands, 0 to 1
};

struct AbRecallDocument {
    std::string context; // ends in a newline
    std::vector<AbRecallQuestion> questions;
};

// One number of five digits in `bytes` of filler, at `depth` (0 to 1).
AbRecallDocument ab_passkey(AbDraws random, const AbFiller &filler, size_t bytes, double depth);

// Two to six facts, spread over `bytes` of filler, and a question for each in another order.
AbRecallDocument ab_facts(AbDraws random, const AbFiller &filler, size_t bytes);

} // namespace keel
