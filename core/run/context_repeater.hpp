#pragma once

#include "kv/inputs/context_repeat.hpp"
#include "run/sequence.hpp"

#include <vector>

namespace keel {

// Runs forward passes of a sequence for a policy that lets the model repeat its context (KVzip).
class ContextRepeater final : public SequenceForward {
  public:
    explicit ContextRepeater(Sequence &sequence);

    std::span<const int32_t> tokens() const override { return sequence_.text.tokens(); }
    std::span<const int32_t> instruction(bool from_words) const override;
    void forward(std::span<const int32_t> ids, std::span<const int32_t> positions,
                 StepTap &tap) override;

  private:
    Sequence &sequence_;
    std::vector<int32_t> whole_;      // asks for the whole context
    std::vector<int32_t> from_words_; // the instruction to repeat the context from given words on
};

} // namespace keel
