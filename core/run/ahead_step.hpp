#pragma once

#include "run/sequence.hpp"

namespace keel {

// One greedy decode step of a sequence that is queued before its token is read. argmax writes the
// token to the place where the next step reads it. Until take() or drop(), the cache has the step's
// slot, but no counter of tokens includes the step.
class AheadStep {
  public:
    explicit AheadStep(Sequence &sequence) : sequence_(sequence) {}

    bool is_queued() const { return static_cast<bool>(queued_); }
    // Returns true if a step can be queued before the token of the last step is read. This requires
    // that the host decides nothing between the two steps: the policy does not act, and the cache
    // needs no new memory.
    bool may_run() const;
    // Returns the most likely token after the last step. A negative number means that a logit is
    // not finite. Waits for the token. If `may_queue` and may_run() are true, queues the next step
    // before the wait.
    int32_t read_token(bool may_queue);
    // If the queued step was computed for token `id`, makes it the last step of the sequence and
    // returns true.
    bool take(int32_t id);
    // Discards the queued step.
    void drop();
    // Call it if the queued step was lost together with its device or its sequence.
    void forget() { queued_.drop(); }
    // Allows steps to be queued ahead again, after an earlier attempt failed.
    void reset();

  private:
    void queue();

    Sequence &sequence_;
    // the read of the token that argmax finds after the queued step; empty if no step is queued
    LaterRead queued_;
    uint64_t results_version_ = 0; // NextToken::results_version() after the last argmax
    bool has_failed_ = false;      // a step could not be queued, so the class does not try again
};

} // namespace keel
