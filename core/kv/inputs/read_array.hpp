#pragma once

#include "device/device.hpp"
#include "kv/store/held_bytes.hpp"

#include <vector>

namespace keel {

// The kind of buffer for numbers that ops write and the host reads. If the device computes in the
// host's memory: a kind that the host reads without a copy. Else `placement`.
keel_buffer_kind read_back_kind(const Device &device, keel_buffer_kind placement);
// The numbers of a contiguous f32 tensor, on the host. Waits for the stream. `copy` takes them if
// the host cannot see the buffer. Valid until the tensor or `copy` changes.
const float *read_floats(const Tensor &tensor, std::vector<float> &copy);

// Rows of f32 that ops write and a policy reads. The memory is used again by the next eviction.
class ReadArray {
  public:
    // Room for ops, [rows, columns]. If the array has to grow, its old numbers are lost.
    Tensor room(Device &device, keel_buffer_kind placement, int64_t rows, int64_t columns);
    // Rows first..first + rows - 1 of the last room(), for ops.
    Tensor rows(int64_t first, int64_t n) const { return last_.rows(first, n); }
    // The same rows on the host. Waits for the stream. Valid until the next call.
    const float *read(int64_t first, int64_t rows);
    void release() { *this = {}; }
    uint64_t bytes() const { return held_bytes(device_) + held_bytes(host_); }

  private:
    Tensor device_, last_;
    std::vector<float> host_;
};

} // namespace keel
