#pragma once

#include "device/device.hpp"
#include "device/weight.hpp"
#include "ops/op_call.hpp"
#include "ops/op_tag.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace keel {

// The rung of the fallback ladder on which an op runs.
enum class Rung {
    native,    // the backend's own op
    composed,  // made of the backend's smaller ops
    fallback,  // on the fallback backend that the config names
    reference, // on the core's reference
};
const char *rung_name(Rung rung);

class Executor;

// An op made of several smaller ones on the same device (compose.cpp).
class Composition {
  public:
    virtual ~Composition() = default;
    virtual void run(Executor &executor, const keel_op_args *args) = 0;
    virtual std::string kernel() const = 0; // "matmul + add_bias"
};

// An op of the pipeline whose rung, kernel and plan are chosen. Executor::plan makes it. It must be
// destroyed before the executor.
class PlannedOp {
  public:
    ~PlannedOp();
    PlannedOp(const PlannedOp &) = delete;
    PlannedOp &operator=(const PlannedOp &) = delete;

    keel_op op() const { return op_; }
    const OpTag &tag() const { return tag_; }
    const std::string &label() const { return label_; } // "decode layer 3: down"
    // Returns the end of the label: "down". The text ends with a zero byte.
    std::string_view part() const { return std::string_view(label_).substr(part_at_); }
    Rung rung() const { return rung_; }
    const std::string &kernel() const { return kernel_; }
    // why the op is not native; empty if it is native
    const std::string &reason() const { return reason_; }
    uint64_t scratch_bytes() const { return scratch_bytes_; }
    // Bytes that one call of the planned shape copies between devices. 0: the devices share memory,
    // or the op runs on the pipeline's own device.
    uint64_t crossing_bytes() const { return crossing_bytes_; }
    const Weight *weight() const { return weight_; }

  private:
    friend class Ladder;   // sets the rung
    friend class Executor; // runs the op
    PlannedOp(keel_op op, const OpTag &tag, Weight *weight)
        : op_(op), tag_(tag), label_(label_text(tag)),
          part_at_(label_.size() - part_text(tag).size()), weight_(weight) {}

    keel_op op_;
    OpTag tag_;
    std::string label_;
    size_t part_at_;
    Weight *weight_;
    Rung rung_ = Rung::native;
    std::string kernel_, reason_;
    uint64_t scratch_bytes_ = 0, crossing_bytes_ = 0;
    std::shared_ptr<Device> device_; // the device that runs the op
    keel_plan *plan_ = nullptr;      // the plan on device_
    std::unique_ptr<Composition> composition_;
    OpCall template_; // the template of the op, for settling it again if the backend refuses a call
};
using OpHandle = std::unique_ptr<PlannedOp>;

// Sets the weight in the args to the form that is stored on a device. Does nothing for ops without
// a weight.
void set_weight(keel_op op, keel_op_args *args, const Weight *weight, const Device &device);

} // namespace keel
