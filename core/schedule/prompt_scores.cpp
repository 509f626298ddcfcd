#include "schedule/prompt_scores.hpp"

namespace keel {

void PromptScores::take(size_t first, std::span<const float> logits) {
    const size_t last = prompt_.size() - 1; // its row belongs to the first generated token
    for (size_t token = begin_ + first; token < last && !logits.empty(); ++token) {
        scores_.push_back(token_logprobs(logits.first(vocabulary_), prompt_[token + 1], top_));
        logits = logits.subspan(vocabulary_);
    }
}

} // namespace keel
