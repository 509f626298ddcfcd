#pragma once

#include "device/device.hpp"
#include "device/weight.hpp"
#include "ops/op_call.hpp"

#include <map>
#include <optional>
#include <vector>

namespace keel {

// Runs an op of one device's pipeline on another device. If the first device maps its buffers for
// the host and the second imports host memory, both devices use the same bytes. Then nothing is
// copied; the devices only wait for each other. Otherwise inputs are copied to the second device,
// and outputs are copied back.
class Crossing final : private BufferWatch {
  public:
    Crossing(std::shared_ptr<Device> from, std::shared_ptr<Device> to);
    ~Crossing();
    Crossing(const Crossing &) = delete;
    Crossing &operator=(const Crossing &) = delete;

    Device &to() const { return *to_; }
    // Returns true if the second device can use a buffer of the first device without a copy.
    // `whole_pages`: the size of the buffer is a multiple of a page. The first call tests this with
    // a buffer, because the backend's flags do not describe its driver. Throws the errors of
    // allocating and importing.
    bool shares(bool whole_pages = true);
    // Returns the bytes that one call with these args copies, in both directions. In a template,
    // tensors have no buffer. Then the function assumes that the tensors do not overlap. It also
    // assumes that they are in shared memory if the devices can share buffers of this size.
    uint64_t bytes(keel_op op, const keel_op_args *args);
    keel_status run(keel_op op, const keel_op_args *args, const Weight *weight, keel_plan *plan);
    uint64_t copied_bytes() const { return copied_; }

  private:
    // Part of a buffer of the first device that tensors of the args use. Overlapping parts form one
    // region. So an operand that is both input and output stays one region. Copying one output back
    // also cannot overwrite another output with old data.
    struct Region {
        keel_buffer *source = nullptr;
        uint64_t begin = 0, end = 0; // bytes of the source
        bool fill = false;           // true: the content must also be copied to the other
                                     // device
        // true: the op writes to the region, so it is copied back
        bool back = false;
        std::vector<size_t> tensors;       // indices into OpCall::tensors()
        const keel_tensor *same = nullptr; // used only for templates
    };

    std::vector<Region> regions_of(const OpCall &call);
    void copy_over(const Region &, Buffer &target, uint64_t pad);
    void copy_back(const Region &, const Buffer &staged, uint64_t pad);
    BufferPtr import(keel_buffer *handle);
    BufferPtr import_all(const Buffer &buffer);
    void before_destroy(const keel_buffer *buffer) noexcept override { imports_.erase(buffer); }

    std::shared_ptr<Device> from_, to_;
    bool may_share_; // according to the backends' flags
    // The results of shares(): [0] for buffers with a part of a page, [1] for buffers of whole
    // pages.
    std::optional<bool> shares_[2];
    uint64_t copied_ = 0;
    // Key: a buffer of the first device. Value: a buffer of the second device that uses the memory
    // of the first buffer. NULL: the second device cannot import this memory. An entry is removed
    // before the first device destroys its buffer.
    std::map<const keel_buffer *, BufferPtr> imports_;
};

} // namespace keel
