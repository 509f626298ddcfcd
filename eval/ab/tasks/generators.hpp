#pragma once

#include "eval/stats/draws.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Generates recall documents. A recall document has facts and filler text, followed by questions
// about the facts. The plain texts use words on which the model models/tiny was trained.
namespace keel::ab {

// Makes filler text, which separates facts. The filler consists of pieces of a given text in random
// order, with spaces instead of newlines.
class Filler {
  public:
    // Cuts `text` into pieces at each "<|endoftext|>", or at newlines if `text` has no
    // "<|endoftext|>". `name` is the name of the text in messages. Throws Error(input) if there are
    // no pieces.
    Filler(std::string_view text, const std::string &name);

    // Returns at most `bytes` bytes of filler. The filler ends after a sentence, or after a word
    // with a full stop that is added. The filler is so long that no further word fits.
    std::string make(SplitMix64 &random, size_t bytes) const;

  private:
    std::vector<std::string> pieces_;
};

// A question, and the first words of the answer. The model gets the question and these words as
// input.
struct RecallWords {
    std::string question; // for example "What is the pass key?"
    std::string opening;  // for example " The pass key is "
};

struct RecallQuestion {
    RecallWords plain; // used for plain text
    RecallWords chat;  // used for a chat template, for models that were trained to answer questions
    std::string expected; // the expected answer, for example "12345"
    double depth = 0;     // place of the answer in the context: 0 is the beginning, 1 is the end
};

struct RecallDocument {
    std::string context; // ends with a newline
    std::vector<RecallQuestion> questions;
};

// Makes a document with one fact, a random number of five digits. The fact is hidden in about
// `bytes` bytes of filler at the place `depth`: 0 is the beginning, 1 is the end.
RecallDocument make_passkey(SplitMix64 random, const Filler &filler, size_t bytes, double depth);

// Makes a document with two to six facts. About `bytes` bytes of filler separate the facts. There
// is one question about each fact; the questions are in a random order.
RecallDocument make_facts(SplitMix64 random, const Filler &filler, size_t bytes);

} // namespace keel::ab
