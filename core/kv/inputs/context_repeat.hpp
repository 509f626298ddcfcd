#pragma once

#include "graph/step_tap.hpp"
#include "kv/evict/policy_setup.hpp"

#include <functional>
#include <span>
#include <vector>

namespace keel {

// Runs forward passes of a sequence. Session implements it.
class SequenceForward {
  public:
    // The tokens of the sequence so far, in order.
    virtual std::span<const int32_t> tokens() const = 0;
    // The tokens of an instruction that tells the model to repeat its whole context. With
    // `from_words`, it tells the model to start with the words that follow the instruction. Throws
    // Error(input) for a model without a tokenizer.
    virtual std::span<const int32_t> instruction(bool from_words) const = 0;
    // Tokens between the instruction, with its words, and the piece that is repeated.
    virtual std::span<const int32_t> opening() const { return {}; }
    // The number of tokens at the front that are not repeated.
    virtual int64_t skipped() const { return 0; }
    // One forward pass without logits. The slots of the tokens must already exist.
    virtual void forward(std::span<const int32_t> ids, std::span<const int32_t> positions,
                         StepTap &tap) = 0;

  protected:
    ~SequenceForward() = default;
};

// Makes the model repeat its context, piece by piece, with the cache in place. Records for each
// slot the largest attention that it got from a repeating query (KVzip). Each repetition sees the
// first slots, its own piece and itself; the scores are normalized over these. Afterwards the cache
// is as before.
class ContextRepeat final : public StepTap {
  public:
    // Numbers(layer, head) returns the number of the token in each slot of a head. The numbers are
    // rising.
    using Numbers = std::function<std::span<const int32_t>(uint32_t layer, uint32_t head)>;
    // `out`: f32 [layers * kv_heads, slots], zeroes. All arguments must stay valid.
    ContextRepeat(PolicySetup &setup, KvCache &cache, SequenceForward &forward, Numbers numbers,
                  const Tensor &out, keel_buffer_kind placement);

    // The number of slots that a repetition needs while it runs, in addition to the slots of
    // `tokens`.
    static int64_t room(const PolicySetup &setup, const SequenceForward &forward, int64_t tokens);
    // `seen`: the position of the next token. Returns false if it was cancelled
    // (HostServices::request_cancel).
    bool run(int64_t seen);
    // The most bytes of the cache's blocks during run().
    uint64_t peak_bytes() const { return peak_bytes_; }

    Places places(uint32_t) override { return {}; }
    void after_attention(uint32_t layer, const Tensor &q) override;

  private:
    bool run_piece(int64_t begin, int64_t end, int64_t seen);

    PolicySetup &setup_;
    KvCache &cache_;
    SequenceForward &forward_;
    Numbers numbers_;
    const Tensor &out_;
    keel_buffer_kind placement_;
    Tensor ranges_;
    QueryPositions query_positions_;
    int64_t begin_ = 0, end_ = 0; // tokens of the piece
    int64_t appended_ = 0;        // slots of the repetition so far
    uint64_t peak_bytes_ = 0;
    std::vector<int32_t> ids_, positions_;
};

} // namespace keel
