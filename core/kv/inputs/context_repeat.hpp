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
    // Returns the tokens of the sequence so far, in order.
    virtual std::span<const int32_t> tokens() const = 0;
    // Returns the tokens of an instruction that tells the model to repeat its whole context. If
    // `from_words` is true, the instruction tells the model to start with the words that follow the
    // instruction. Throws Error(input) for a model without a tokenizer.
    virtual std::span<const int32_t> instruction(bool from_words) const = 0;
    // Returns the tokens that stand before the piece to repeat, after the instruction and its
    // words.
    virtual std::span<const int32_t> opening() const { return {}; }
    // Returns the number of tokens at the front that are not repeated.
    virtual int64_t skipped() const { return 0; }
    // Runs one forward pass without logits. The slots of the tokens must already exist.
    virtual void forward(std::span<const int32_t> ids, std::span<const int32_t> positions,
                         StepTap &tap) = 0;

  protected:
    ~SequenceForward() = default;
};

// Makes the model repeat its context, piece by piece, with the cache in place. For each slot,
// records the largest attention probability that a query of a repeated token gives this slot
// (KVzip). The tokens that repeat a piece attend to the first slots, the piece, and each other. The
// probabilities are normalized over these slots. run() leaves the cache unchanged.
class ContextRepeat final : public StepTap {
  public:
    // Numbers(layer, head) returns the number of the token in each slot of a head. The numbers are
    // rising.
    using Numbers = std::function<std::span<const int32_t>(uint32_t layer, uint32_t head)>;
    // `out`: f32 [layers * kv_heads, slots], all 0. All arguments must stay valid.
    ContextRepeat(PolicySetup &setup, KvCache &cache, SequenceForward &forward, Numbers numbers,
                  const Tensor &out, keel_buffer_kind placement);

    // Returns the number of slots that run() needs for a moment, in addition to the slots of
    // `tokens`.
    static int64_t room(const PolicySetup &setup, const SequenceForward &forward, int64_t tokens);
    // Repeats the whole context. `seen`: the position of the next token. Returns false if the user
    // cancelled it (HostServices::request_cancel).
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
    int64_t begin_ = 0, end_ = 0; // the tokens of the present piece
    int64_t appended_ = 0;        // slots that were appended for the repeated tokens so far
    uint64_t peak_bytes_ = 0;
    std::vector<int32_t> ids_, positions_;
};

} // namespace keel
