#pragma once

#include "device/device.hpp"
#include "device/op_args.hpp"
#include "device/weight.hpp"

#include <map>

namespace keel {

// Runs an op of one device's pipeline on another device. Where the first maps its buffers for the host and the second imports host
// memory, both work on the same bytes and only wait for each other; otherwise inputs are copied over and outputs back.
class Crossing {
  public:
    Crossing(std::shared_ptr<Device> from, std::shared_ptr<Device> to);

    Device &to() const { return *to_; }
    bool shares() const { return shares_; }
    // Bytes that one call with these args copies when memory is not shared.
    static uint64_t bytes(keel_op op, const keel_op_args *args);
    keel_status run(keel_op op, const keel_op_args *args, const Weight *weight, keel_plan *plan);
    uint64_t copied_bytes() const { return copied_; }

  private:
    struct Import {
        void *host;
        uint64_t size;
        BufferPtr buffer;
    };
    BufferPtr import(keel_buffer *handle);

    std::shared_ptr<Device> from_, to_;
    bool shares_;
    uint64_t copied_ = 0;
    std::map<keel_buffer *, Import>
        imports_; // by the first device's handle; checked against its mapping at each use
};

} // namespace keel
