#pragma once

#include "run/engine.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace keel {

// The results of a sequence's last step that can still be read: its logits and its most likely next
// token.
class StepResults {
  public:
    // A step was queued. `holder` computes `rows` rows of logits.
    void begin(Engine &holder, uint32_t rows);
    // From now on no step has results to read.
    void forget();
    // The device is lost: no read is pending there, and nothing will be computed again.
    void forget_on_device();
    // Copies the logits of the parent of a fork, which has read them.
    void copy_logits(const StepResults &other);

    Engine *holder() const { return holder_; } // NULL: no step was taken
    uint32_t rows() const { return rows_; }
    // In a step with rows of several sequences: the row of the device's logits that belongs to this
    // sequence.
    void set_first_row(uint32_t row) { first_row_ = row; }
    uint32_t first_row() const { return first_row_; }

    bool has_logits() const { return has_logits_; }           // logits() are of the last step
    std::span<const float> logits() const { return logits_; } // [rows, vocabulary]
    // Waits for the step and reads its logits from the device.
    std::span<const float> read_logits(size_t vocabulary);
    // The logits were read elsewhere.
    void put_logits(std::span<const float> logits);
    // The values that were read are not all finite.
    void reject_logits() { has_logits_ = false; }

    std::optional<int32_t> next_token() const { return next_token_; }
    void put_token(int32_t id) { next_token_ = id; }
    // The next token is on its way to the host: argmax was queued together with the step.
    bool has_pending_read() const { return static_cast<bool>(pending_read_); }
    void set_pending_read(LaterRead read) { pending_read_ = std::move(read); }
    LaterRead take_pending_read() { return std::move(pending_read_); }

    // A later step has written over the logits on the device.
    bool is_overwritten() const { return is_overwritten_; }
    void set_overwritten(bool is_overwritten) { is_overwritten_ = is_overwritten; }
    // The step is computed again on `holder`, because it was overwritten.
    void begin_repeat(Engine &holder);
    // If the logits are overwritten, they cannot be computed again: the next step may evict.
    void give_up_overwritten();

  private:
    Engine *holder_ = nullptr; // its graph has the results
    uint32_t rows_ = 0;
    uint32_t first_row_ = 0;
    std::vector<float> logits_; // kept from step to step
    bool has_logits_ = false;
    std::optional<int32_t> next_token_;
    LaterRead pending_read_;
    bool is_overwritten_ = false;
};

} // namespace keel
