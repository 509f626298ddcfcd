#pragma once

#include "device/device.hpp"
#include "kv/store/held_bytes.hpp"

#include <vector>

namespace keel {

// Returns the kind of buffer for numbers that ops write and the host reads. If the device computes
// in the host's memory, the host can read this kind without a copy. Otherwise the result is
// `placement`.
keel_buffer_kind read_back_kind(const Device &device, keel_buffer_kind placement);
// Returns the numbers of a contiguous f32 tensor in host memory. Waits for the stream. If the host
// cannot access the buffer, the numbers are copied to `copy`. The result is valid until the tensor
// or `copy` changes.
const float *read_floats(const Tensor &tensor, std::vector<float> &copy);

// Rows of f32 that ops write and a policy reads. The memory is used again by the next eviction.
class ReadArray {
  public:
    // Returns a tensor [rows, columns] to which ops write. If the array has to grow, its old
    // numbers are lost.
    Tensor room(Device &device, keel_buffer_kind placement, int64_t rows, int64_t columns);
    // Returns rows first..first + n - 1 of the tensor that room() returned last, for ops.
    Tensor rows(int64_t first, int64_t n) const { return last_.rows(first, n); }
    // Returns rows first..first + rows - 1 in host memory. Waits for the stream. The result is
    // valid until the next call.
    const float *read(int64_t first, int64_t rows);
    void release() { *this = {}; }
    uint64_t bytes() const { return held_bytes(device_) + held_bytes(host_); }

  private:
    Tensor device_, last_;
    std::vector<float> host_;
};

} // namespace keel
