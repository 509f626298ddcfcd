#pragma once

#include "device/device.hpp"

#include <keel/kv.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace keel {

// A tensor's elements as numbers on the host, whatever its dtype, strides and device; or rows of a
// KV cache.
struct TensorValues {
    std::string name;                              // "out", "kv.k"
    keel_dtype dtype = KEEL_DTYPE_NONE;            // as stored
    std::vector<int64_t> shape;                    // of a KV cache: [rows, head_dim]
    std::vector<std::pair<int64_t, int64_t>> rows; // of a KV cache: head and slot of each row
    std::vector<float> values;                     // dense

    int64_t inner() const { return shape.empty() ? 0 : shape.back(); }
    std::string place(size_t element) const; // "[3, 17]", or "head 1, slot 40, element 5"
};

// Element types that can be read as numbers.
bool is_readable(keel_dtype dtype);

// Waits for the stream. The buffer lies on `device`.
TensorValues read_values(Device &device, const keel_tensor &tensor, std::string name);
// Overwrites the tensor with values of the same shape, rounded to its dtype.
void write_values(Device &device, const keel_tensor &tensor, const TensorValues &values);
// The bytes of a tensor, dense: rows without the gaps of strides.
std::vector<std::byte> read_dense(Device &device, const keel_tensor &tensor);

// Slots [first, second) of a head.
using SlotRange = std::pair<int64_t, int64_t>;
// K (or V) of slots of a cache; slots without a block are left out.
TensorValues read_kv(Device &device, const keel_kv_view &view, bool keys,
                     const std::vector<SlotRange> &ranges);
void write_kv(Device &device, const keel_kv_view &view, bool keys, const TensorValues &rows);
// An i32 tensor, dense.
std::vector<int32_t> read_ints(Device &device, const keel_tensor &tensor);

} // namespace keel
