#pragma once

#include "text/tokenizer/tokenizer.hpp"
#include "text/utf8.hpp"

#include <keel/keel.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace keel::server {

// Smallest logarithm that an answer contains. JSON has no -inf.
inline constexpr double least_logprob = -9999.0;

// The number that answers show for a log probability: finite.
double shown_logprob(double logprob);

// The value of the token of the text. If the token is among the most likely ones, the value is
// taken from there, so that both are the same number.
double chosen_logprob(const api::Logprobs &token);

// The text of a token in lists of log probabilities. If its bytes are not whole characters:
// "bytes:\xe2\x82", so that different tokens have different texts.
std::string token_name(const Tokenizer &tokenizer, int32_t id);

// Counts the characters of a text whose tokens come one after the other. It gives the
// `text_offset` of each token, in code points.
class OffsetCounter {
  public:
    // Offset of the token's first character. Special tokens have no text.
    int64_t push(const Tokenizer &tokenizer, int32_t id);
    // The text begins after other text of this number of code points.
    void skip(int64_t characters) {
        count_ += characters;
        at_start_ = false;
    }

  private:
    Utf8Stream utf8_;
    std::string piece_;
    int64_t count_ = 0;
    bool at_start_ = true;
};

// Number of code points of valid UTF-8.
int64_t count_characters(std::string_view text) noexcept;

} // namespace keel::server
