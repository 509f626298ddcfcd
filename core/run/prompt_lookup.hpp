#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace keel {

// Guesses the next tokens of a text: if the last three tokens occurred earlier in the text, the
// guess is the tokens that followed them there. (Prompt lookup decoding, Saxena 2023.) Good for
// texts that quote their prompt, such as edited code and summaries.
class PromptLookup {
  public:
    // Returns at most `most` tokens that may follow after `text`, then `next`. The span is valid
    // until the next call. `text` must begin with the text of the call before.
    std::span<const int32_t> guess(std::span<const int32_t> text, int32_t next, int64_t most);

  private:
    void add(int64_t end);

    std::vector<int32_t> text_;
    // three tokens, as a hash -> the index of the token after their last occurrence
    std::unordered_map<uint64_t, int64_t> after_;
    int64_t added_ = 0; // the occurrences that end before this index are in after_
};

// Decides whether guesses are worth their time. It compares the tokens per second of steps with and
// without a guess.
class GuessGain {
  public:
    using Clock = std::chrono::steady_clock;

    // Returns true if the next step should have a guess.
    bool wants_guess() const { return pause_ == 0; }
    // A step gave `tokens` tokens. The time of the step ends now.
    void count(bool guessed, int64_t tokens, Clock::time_point now);

  private:
    struct Rate {
        double seconds = 0, tokens = 0;
        int64_t steps = 0;
    };

    Clock::time_point last_{};
    Rate plain_, guessed_;
    int64_t pause_ = 4; // steps without a guess; the first steps measure the plain rate
    int64_t next_pause_ = 32;
};

} // namespace keel
