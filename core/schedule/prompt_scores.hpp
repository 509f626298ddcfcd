#pragma once

#include "run/session_batch.hpp"
#include "text/logprobs.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace keel {

// Collects the probabilities of a prompt's tokens while the prompt is read. The probabilities are
// those of the model with the cache that the policy leaves it: under a policy that evicts between
// chunks, later tokens do not attend to evicted ones.
class PromptScores final : public SessionBatch::RowReader {
  public:
    // `prompt` must outlive this object. `vocabulary`: the length of a row of logits. `top`: the
    // number of most likely tokens.
    PromptScores(std::span<const int32_t> prompt, size_t vocabulary, int64_t top)
        : prompt_(prompt), vocabulary_(vocabulary), top_(top) {}

    // The next part begins with this token of the prompt.
    void begin_part(size_t token) { begin_ = token; }
    void take(size_t first, std::span<const float> logits) override;
    // Entry i belongs to token i + 1 of the prompt.
    std::vector<TokenLogprobs> take_scores() { return std::move(scores_); }

  private:
    std::span<const int32_t> prompt_;
    size_t vocabulary_;
    int64_t top_;
    size_t begin_ = 0;
    std::vector<TokenLogprobs> scores_;
};

} // namespace keel
