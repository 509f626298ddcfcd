#pragma once

#include "device/device.hpp"
#include "device/weight.hpp"
#include "ops/op_call.hpp"

#include <map>
#include <optional>
#include <vector>

namespace keel {

// Runs an op of one device's pipeline on another device. If the first device maps its buffers for
// the host and the second imports host memory, both use the same bytes and only wait for each
// other. If not, inputs are copied to the second device and outputs back.
class Crossing final : private BufferWatch {
  public:
    Crossing(std::shared_ptr<Device> from, std::shared_ptr<Device> to);
    ~Crossing();
    Crossing(const Crossing &) = delete;
    Crossing &operator=(const Crossing &) = delete;

    Device &to() const { return *to_; }
    // Can the second device use a buffer of the first one without a copy? `whole_pages`: the size
    // of the buffer is a multiple of a page. The first call tries it with a buffer, because the
    // backend's flags do not describe its driver. Throws as allocating and importing do.
    bool shares(bool whole_pages = true);
    // Bytes that one call with these args copies, in both directions. Tensors without a buffer
    // (those of a template) are assumed not to overlap, and to be in shared memory if the devices
    // can share buffers of this size.
    uint64_t bytes(keel_op op, const keel_op_args *args);
    keel_status run(keel_op op, const keel_op_args *args, const Weight *weight, keel_plan *plan);
    uint64_t copied_bytes() const { return copied_; }

  private:
    // Part of a buffer of the first device that tensors of the args use. Overlapping parts are one
    // region: so in-place operands stay in place, and copying one output back cannot overwrite
    // another with old data.
    struct Region {
        keel_buffer *source = nullptr;
        uint64_t begin = 0, end = 0;       // bytes of the source
        bool fill = false;                 // its content is needed on the other side
        bool back = false;                 // it is written there
        std::vector<size_t> tensors;       // indices into OpCall::tensors()
        const keel_tensor *same = nullptr; // templates only
    };

    std::vector<Region> regions_of(const OpCall &call);
    void copy_over(const Region &, Buffer &target, uint64_t pad);
    void copy_back(const Region &, const Buffer &staged, uint64_t pad);
    BufferPtr import(keel_buffer *handle);
    BufferPtr import_all(const Buffer &buffer);
    void before_destroy(const keel_buffer *buffer) noexcept override { imports_.erase(buffer); }

    std::shared_ptr<Device> from_, to_;
    bool may_share_; // according to the backends' flags
    // According to trials with a buffer: of parts of pages, of whole pages.
    std::optional<bool> shares_[2];
    uint64_t copied_ = 0;
    // Key: a buffer of the first device. Value: a buffer of the second device that uses the memory
    // of the first buffer. NULL: the second device cannot import this memory. An entry is removed
    // before the first device destroys its buffer.
    std::map<const keel_buffer *, BufferPtr> imports_;
};

} // namespace keel
