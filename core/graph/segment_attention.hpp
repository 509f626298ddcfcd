#pragma once

#include "graph/segment.hpp"
#include "graph/step_program.hpp"
#include "ops/batched_decode.hpp"

#include <memory>

namespace keel {

// Runs the attention of a step, layer by layer. In each layer, it runs one segment after the other,
// or one call for all sequences.
class SegmentAttention {
  public:
    // A segment of one token uses the ops of `decode`, a longer one those of `prefill`. All
    // arguments must outlive this object.
    SegmentAttention(Executor &executor, Decoder &decoder, const Workspace &workspace,
                     const StepProgram &decode, const StepProgram &prefill)
        : executor_(executor), decoder_(decoder), workspace_(workspace), decode_(decode),
          prefill_(prefill) {}

    // Finds out whether one call of the backend can compute the attention of `sequences` sequences.
    // `kv` is a view without memory.
    void settle_together(uint32_t sequences, const keel_batch_kv &kv);
    bool can_attend_together() const { return batched_ != nullptr; }

    // Begins a step, and writes the RoPE tables that it needs. `together`: for each layer, one view
    // of all caches; may be empty. One call computes the attention of all sequences if the backend
    // can do this, each sequence has one token, and no sequence has by-products for a policy. Both
    // spans must be valid until the end of the step.
    void begin(std::span<const Segment> segments, std::span<const keel_batch_kv *const> together);
    void run(size_t layer);

  private:
    bool ensure_rotations();
    void attend_together(size_t layer, const keel_batch_kv &kv);
    void attend(size_t layer, const Segment &segment, uint32_t first_row);

    Executor &executor_;
    Decoder &decoder_;
    const Workspace &workspace_;
    const StepProgram &decode_, &prefill_;
    std::unique_ptr<BatchedDecode> batched_; // NULL: sequences attend one by one
    // Of the step.
    std::span<const Segment> segments_;
    std::span<const keel_batch_kv *const> together_; // empty: segment by segment
    std::vector<int32_t> positions_;
    bool has_rotations_ = false; // the tables have the rows of all tokens at once
};

} // namespace keel
