#pragma once

#include "device/device.hpp"

#include <keel/kv.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace keel {

// The elements of a tensor as numbers on the host. The tensor can have any dtype, strides and
// device. The elements can also be rows of a KV cache.
struct TensorValues {
    std::string name;                              // for example "out" or "kv.k"
    keel_dtype dtype = KEEL_DTYPE_NONE;            // dtype of the tensor
    std::vector<int64_t> shape;                    // for rows of a KV cache: [rows, head_dim]
    std::vector<std::pair<int64_t, int64_t>> rows; // for a KV cache: head and slot of each row
    std::vector<float> values;                     // the elements, dense

    int64_t inner() const { return shape.empty() ? 0 : shape.back(); }
    // for example "[3, 17]" or "head 1, slot 40, element 5"
    std::string place(size_t element) const;
};

// True if elements of this dtype can be converted to numbers.
bool is_readable(keel_dtype dtype);

// Reads a tensor. Waits for the stream first. The tensor's buffer must be on `device`.
TensorValues read_values(Device &device, const keel_tensor &tensor, std::string name);
// Overwrites a tensor with values of the same shape. Converts the values to the tensor's dtype.
void write_values(Device &device, const keel_tensor &tensor, const TensorValues &values);
// Returns the tensor's bytes as a dense array, without the gaps between strided rows.
std::vector<std::byte> read_dense(Device &device, const keel_tensor &tensor);

// The slots of a head from `first` up to, but not including, `second`.
using SlotRange = std::pair<int64_t, int64_t>;
// Reads K or V of slots of a cache. Slots that have no block are left out.
TensorValues read_kv(Device &device, const keel_kv_view &view, bool keys,
                     const std::vector<SlotRange> &ranges);
void write_kv(Device &device, const keel_kv_view &view, bool keys, const TensorValues &rows);
// Returns the values of an i32 tensor.
std::vector<int32_t> read_ints(Device &device, const keel_tensor &tensor);

} // namespace keel
