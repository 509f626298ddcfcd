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
    // Call it when a step was queued. `holder`: the engine that computes `rows` rows of logits.
    void begin(Engine &holder, uint32_t rows);
    // Clears the results. After this, there are no results to read.
    void forget();
    // Call it if the device is lost. Drops the pending read. The step will not be computed again.
    void forget_on_device();
    // For a fork: copies the logits that the parent has read.
    void copy_logits(const StepResults &other);

    Engine *holder() const { return holder_; } // NULL: no step was run
    uint32_t rows() const { return rows_; }
    // For a step of several sequences: sets the first row of the device's logits that belongs to
    // this sequence.
    void set_first_row(uint32_t row) { first_row_ = row; }
    uint32_t first_row() const { return first_row_; }

    // true: logits() belong to the last step
    bool has_logits() const { return has_logits_; }
    std::span<const float> logits() const { return logits_; } // [rows, vocabulary]
    // Waits for the step and reads its logits from the device.
    std::span<const float> read_logits(size_t vocabulary);
    // Stores logits that another class has read.
    void put_logits(std::span<const float> logits);
    // Call it if the logits are not all finite.
    void reject_logits() { has_logits_ = false; }

    std::optional<int32_t> next_token() const { return next_token_; }
    void put_token(int32_t id) { next_token_ = id; }
    // Returns true if argmax was queued together with the step and its result is not read yet.
    bool has_pending_read() const { return static_cast<bool>(pending_read_); }
    void set_pending_read(LaterRead read) { pending_read_ = std::move(read); }
    LaterRead take_pending_read() { return std::move(pending_read_); }

    // Returns true if a later step has overwritten the logits on the device.
    bool is_overwritten() const { return is_overwritten_; }
    void set_overwritten(bool is_overwritten) { is_overwritten_ = is_overwritten; }
    // Call it when the step is computed again on `holder`, because its logits were overwritten.
    void begin_repeat(Engine &holder);
    // Call it before the next step, which can evict. After that, overwritten logits cannot be
    // computed again.
    void give_up_overwritten();

  private:
    Engine *holder_ = nullptr; // the engine whose graph has the results
    uint32_t rows_ = 0;
    uint32_t first_row_ = 0;
    std::vector<float> logits_; // the memory is kept from step to step
    bool has_logits_ = false;
    std::optional<int32_t> next_token_;
    LaterRead pending_read_;
    bool is_overwritten_ = false;
};

} // namespace keel
