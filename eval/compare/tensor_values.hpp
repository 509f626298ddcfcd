#pragma once

#include "device/device.hpp"

#include <keel/kv.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace keel {

// The elements of a tensor as numbers on the host, for any dtype, strides and device. Or rows of a
// KV cache.
struct TensorValues {
    std::string name;                              // "out", "kv.k"
    keel_dtype dtype = KEEL_DTYPE_NONE;            // the stored dtype
    std::vector<int64_t> shape;                    // of KV cache rows: [rows, head_dim]
    std::vector<std::pair<int64_t, int64_t>> rows; // head and slot of each row of a KV cache
    std::vector<float> values;                     // dense

    int64_t inner() const { return shape.empty() ? 0 : shape.back(); }
    std::string place(size_t element) const; // "[3, 17]", or "head 1, slot 40, element 5"
};

// Can elements of this type be converted to numbers?
bool is_readable(keel_dtype dtype);

// Waits for the stream. The buffer is on `device`.
TensorValues read_values(Device &device, const keel_tensor &tensor, std::string name);
// Overwrites the tensor with values of the same shape, converted to its dtype.
void write_values(Device &device, const keel_tensor &tensor, const TensorValues &values);
// The tensor's bytes as a dense array, without the gaps of strides.
std::vector<std::byte> read_dense(Device &device, const keel_tensor &tensor);

// The slots [first, second) of a head.
using SlotRange = std::pair<int64_t, int64_t>;
// K or V of slots of a cache. Slots without a block are left out.
TensorValues read_kv(Device &device, const keel_kv_view &view, bool keys,
                     const std::vector<SlotRange> &ranges);
void write_kv(Device &device, const keel_kv_view &view, bool keys, const TensorValues &rows);
// The values of an i32 tensor.
std::vector<int32_t> read_ints(Device &device, const keel_tensor &tensor);

} // namespace keel
