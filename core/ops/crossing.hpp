#pragma once

#include "device/device.hpp"
#include "device/weight.hpp"
#include "ops/op_call.hpp"

#include <map>
#include <optional>
#include <vector>

namespace keel {

// Runs an op of one device's pipeline on another device. Where the first maps its buffers for the
// host and the second imports host memory, both work on the same bytes and only wait for each
// other; otherwise inputs are copied over and outputs back.
class Crossing final : private BufferWatch {
  public:
    Crossing(std::shared_ptr<Device> from, std::shared_ptr<Device> to);
    ~Crossing();
    Crossing(const Crossing &) = delete;
    Crossing &operator=(const Crossing &) = delete;

    Device &to() const { return *to_; }
    // True if a buffer that the first device maps need not be copied; of a size that is whole
    // pages, or one that is not. The first call tries it with such a buffer, because slots and
    // flags describe the backend, not its driver. Throws as allocating and importing do.
    bool shares(bool whole_pages = true);
    // Bytes that one call with these args copies, there and back. Tensors without a buffer (a
    // template's) are taken to lie where the devices share memory, if they share any of that size,
    // and apart from each other.
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
    bool may_share_;                // as the backends tell
    std::optional<bool> shares_[2]; // as was tried: of parts of pages, of whole pages
    uint64_t copied_ = 0;
    // The first device's buffers as the second's; NULL: cannot be imported. Gone before the first
    // device destroys the memory.
    std::map<const keel_buffer *, BufferPtr> imports_;
};

} // namespace keel
