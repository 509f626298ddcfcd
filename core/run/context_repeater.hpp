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
    std::span<const int32_t> opening() const override { return opening_; }
    int64_t skipped() const override;
    void forward(std::span<const int32_t> ids, std::span<const int32_t> positions,
                 StepTap &tap) override;

  private:
    void take_kvpress_words(const Tokenizer &tokenizer);

    Sequence &sequence_;
    std::vector<int32_t> whole_;      // the instruction to repeat the whole context
    std::vector<int32_t> from_words_; // the instruction to repeat the context from given words on
    std::vector<int32_t> opening_;    // the tokens between the instruction and the piece
    std::vector<int32_t> prefix_;     // the start of a chat, which is not repeated
};

} // namespace keel
