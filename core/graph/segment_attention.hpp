#pragma once

#include "graph/segment.hpp"
#include "graph/step_program.hpp"
#include "ops/batched_decode.hpp"

#include <memory>

namespace keel {

// The caches of the first `sequences` segments of a step as one view, by layer. `sequences` is
// plain_decodes() of the segments. No views: the caches cannot be read together.
struct CachesTogether {
    std::span<const keel_batch_kv *const> views;
    size_t sequences = 0;
};

// Returns the number of segments at the beginning of `segments` that have one token and no tap. One
// call of the backend can compute the attention of these segments together.
size_t plain_decodes(std::span<const Segment> segments);

// Runs the attention of a step, layer by layer. In each layer it first runs one call for the
// sequences of CachesTogether. Then it runs the other segments one after the other.
class SegmentAttention {
  public:
    // A segment of one token uses the ops of `decode`. A longer segment uses the ops of `prefill`.
    // All arguments must outlive this object.
    SegmentAttention(Executor &executor, Decoder &decoder, const Workspace &workspace,
                     const StepProgram &decode, const StepProgram &prefill)
        : executor_(executor), decoder_(decoder), workspace_(workspace), decode_(decode),
          prefill_(prefill) {}

    // Finds out whether one call of the backend can compute the attention of `sequences` sequences.
    // `kv` is a view without memory.
    void settle_together(uint32_t sequences, const keel_batch_kv &kv);
    bool can_attend_together() const { return batched_ != nullptr; }

    // Begins a step, and writes the rows of the RoPE tables that the step needs. `together`: the
    // sequences whose attention one call computes, if the backend can do this. Otherwise all
    // segments run one after the other. All spans must be valid until the end of the step.
    void begin(std::span<const Segment> segments, const CachesTogether &together);
    void run(size_t layer);

  private:
    bool ensure_rotations();
    void attend_together(size_t layer);
    void attend(size_t layer, const Segment &segment, uint32_t first_row);

    Executor &executor_;
    Decoder &decoder_;
    const Workspace &workspace_;
    const StepProgram &decode_, &prefill_;
    std::unique_ptr<BatchedDecode> batched_; // NULL: sequences attend one by one
    // The segments of the present step.
    std::span<const Segment> segments_;
    CachesTogether together_; // no sequences: the segments run one by one
    std::vector<int32_t> positions_;
    bool has_rotations_ = false; // true: the tables have the rows of all tokens at once
};

} // namespace keel
