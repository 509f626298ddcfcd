#include "eval/compare/tensor_values.hpp"

#include "device/tensor.hpp"
#include "numbers/convert.hpp"

#include <algorithm>
#include <cstring>

namespace keel {
namespace {

Buffer &buffer_of(Device &device, const keel_tensor &tensor) {
    Buffer *buffer = device.find(tensor.buffer);
    if (buffer == nullptr)
        throw_error(ErrorKind::internal, "a tensor has no buffer on {}", device.plugin());
    return *buffer;
}

int64_t row_count(const keel_tensor &tensor) {
    int64_t rows = 1;
    for (uint32_t i = 0; i + 1 < tensor.rank; ++i) rows *= tensor.shape[i];
    return rows;
}

// Calls visit(row, offset) for each innermost row. The offset is in bytes from the tensor's first
// element.
template <typename Visit> void for_each_row(const keel_tensor &tensor, const Visit &visit) {
    const int64_t rows = row_count(tensor);
    for (int64_t row = 0; row < rows; ++row) {
        int64_t rest = row;
        uint64_t at = 0;
        for (uint32_t i = tensor.rank - 1; i-- > 0;) {
            at += static_cast<uint64_t>(rest % tensor.shape[i]) *
                  static_cast<uint64_t>(tensor.stride[i]);
            rest /= tensor.shape[i];
        }
        visit(static_cast<size_t>(row), at);
    }
}

bool is_int(keel_dtype dtype) { return dtype == KEEL_DTYPE_I32; }

void to_floats(keel_dtype dtype, const std::byte *from, float *to, size_t n) {
    if (!is_int(dtype)) return convert_to_f32(dtype, from, to, n);
    for (size_t i = 0; i < n; ++i) {
        int32_t value = 0;
        std::memcpy(&value, from + i * sizeof value, sizeof value);
        to[i] = static_cast<float>(value);
    }
}

void from_floats(keel_dtype dtype, const float *from, std::byte *to, size_t n) {
    if (!is_int(dtype)) {
        convert_from_f32(dtype, from, to, n); // a block with a NaN becomes NaN as a whole
        return;
    }
    for (size_t i = 0; i < n; ++i) {
        const auto value = static_cast<int32_t>(from[i]);
        std::memcpy(to + i * sizeof value, &value, sizeof value);
    }
}

// Finds the byte offset of a slot's row in an arena. find() returns false if the head has no block
// for the slot.
class KvPlaces {
  public:
    KvPlaces(Device &device, const keel_kv_view &view, bool keys)
        : arena_(keys ? *view.k : *view.v), block_slots_(view.block_slots),
          table_(read_ints(device, *view.block_table)), table_columns_(view.block_table->shape[1]) {
    }

    const keel_tensor &arena() const { return arena_; }
    uint64_t row_bytes() const {
        return keel_dtype_row_bytes(arena_.dtype, static_cast<uint64_t>(arena_.shape[2]));
    }
    bool find(int64_t head, int64_t slot, uint64_t *offset) const {
        const int64_t column = slot / block_slots_;
        if (slot < 0 || column >= table_columns_) return false;
        const int32_t block = table_[static_cast<size_t>(head * table_columns_ + column)];
        if (block < 0 || block >= arena_.shape[0]) return false;
        *offset =
            arena_.offset + static_cast<uint64_t>(block) * static_cast<uint64_t>(arena_.stride[0]) +
            static_cast<uint64_t>(slot % block_slots_) * static_cast<uint64_t>(arena_.stride[1]);
        return true;
    }

  private:
    const keel_tensor &arena_;
    int64_t block_slots_;
    std::vector<int32_t> table_; // [kv_heads, columns]
    int64_t table_columns_;
};

} // namespace

bool is_readable(keel_dtype dtype) {
    switch (dtype) {
    case KEEL_DTYPE_F32:
    case KEEL_DTYPE_F16:
    case KEEL_DTYPE_BF16:
    case KEEL_DTYPE_Q8_0:
    case KEEL_DTYPE_Q4_0:
    case KEEL_DTYPE_Q4_K:
    case KEEL_DTYPE_Q5_K:
    case KEEL_DTYPE_Q6_K:
    case KEEL_DTYPE_I32: return true;
    default: return false;
    }
}

std::string TensorValues::place(size_t element) const {
    if (!rows.empty()) {
        const auto inner_size = static_cast<size_t>(inner());
        const auto &[head, slot] = rows[element / inner_size];
        return fmt::format("head {}, slot {}, element {}", head, slot, element % inner_size);
    }
    std::string text;
    for (size_t i = shape.size(); i-- > 0;) {
        const auto size = static_cast<size_t>(shape[i]);
        text = fmt::format("{}{}{}", element % size, text.empty() ? "" : ", ", text);
        element /= size;
    }
    return fmt::format("[{}]", text);
}

TensorValues read_values(Device &device, const keel_tensor &tensor, std::string name) {
    TensorValues out;
    out.name = std::move(name);
    out.dtype = tensor.dtype;
    out.shape.assign(tensor.shape, tensor.shape + tensor.rank);
    const uint64_t bytes = extent_bytes(tensor);
    if (bytes == 0) return out;
    std::vector<std::byte> raw(bytes);
    buffer_of(device, tensor).read(tensor.offset, raw.data(), bytes);
    const auto inner = static_cast<size_t>(out.inner());
    out.values.resize(static_cast<size_t>(row_count(tensor)) * inner);
    for_each_row(tensor, [&](size_t row, uint64_t at) {
        to_floats(tensor.dtype, raw.data() + at, out.values.data() + row * inner, inner);
    });
    return out;
}

void write_values(Device &device, const keel_tensor &tensor, const TensorValues &values) {
    const uint64_t bytes = extent_bytes(tensor);
    if (bytes == 0) return;
    // The bytes between the rows of a strided view belong to other tensors. So all bytes of the
    // range are read, changed and written back.
    std::vector<std::byte> raw(bytes);
    Buffer &buffer = buffer_of(device, tensor);
    if (!is_contiguous(tensor)) buffer.read(tensor.offset, raw.data(), bytes);
    const auto inner = static_cast<size_t>(values.inner());
    for_each_row(tensor, [&](size_t row, uint64_t at) {
        from_floats(tensor.dtype, values.values.data() + row * inner, raw.data() + at, inner);
    });
    buffer.write(tensor.offset, raw.data(), bytes);
}

std::vector<std::byte> read_dense(Device &device, const keel_tensor &tensor) {
    const uint64_t bytes = extent_bytes(tensor);
    std::vector<std::byte> raw(bytes);
    if (bytes == 0) return raw;
    buffer_of(device, tensor).read(tensor.offset, raw.data(), bytes);
    if (is_contiguous(tensor)) return raw;
    const uint64_t row_bytes =
        keel_dtype_row_bytes(tensor.dtype, static_cast<uint64_t>(tensor.shape[tensor.rank - 1]));
    std::vector<std::byte> dense(static_cast<uint64_t>(row_count(tensor)) * row_bytes);
    for_each_row(tensor, [&](size_t row, uint64_t at) {
        std::memcpy(dense.data() + row * row_bytes, raw.data() + at, row_bytes);
    });
    return dense;
}

std::vector<int32_t> read_ints(Device &device, const keel_tensor &tensor) {
    const std::vector<std::byte> dense = read_dense(device, tensor);
    std::vector<int32_t> out(dense.size() / sizeof(int32_t));
    if (!out.empty()) std::memcpy(out.data(), dense.data(), dense.size());
    return out;
}

TensorValues read_kv(Device &device, const keel_kv_view &view, bool keys,
                     const std::vector<SlotRange> &ranges) {
    const KvPlaces places(device, view, keys);
    const keel_tensor &arena = places.arena();
    TensorValues out;
    out.name = keys ? "kv.k" : "kv.v";
    out.dtype = arena.dtype;
    const auto inner = static_cast<size_t>(arena.shape[2]);
    const Buffer &buffer = buffer_of(device, arena);
    std::vector<std::byte> row(places.row_bytes());
    for (size_t head = 0; head < ranges.size(); ++head) {
        for (int64_t slot = std::max<int64_t>(ranges[head].first, 0); slot < ranges[head].second;
             ++slot) {
            uint64_t offset = 0;
            if (!places.find(static_cast<int64_t>(head), slot, &offset)) continue;
            buffer.read(offset, row.data(), row.size());
            out.rows.emplace_back(head, slot);
            out.values.resize(out.values.size() + inner);
            to_floats(arena.dtype, row.data(), out.values.data() + out.values.size() - inner,
                      inner);
        }
    }
    out.shape = {static_cast<int64_t>(out.rows.size()), arena.shape[2]};
    return out;
}

void write_kv(Device &device, const keel_kv_view &view, bool keys, const TensorValues &rows) {
    const KvPlaces places(device, view, keys);
    Buffer &buffer = buffer_of(device, places.arena());
    const auto inner = static_cast<size_t>(rows.inner());
    std::vector<std::byte> raw(places.row_bytes());
    for (size_t i = 0; i < rows.rows.size(); ++i) {
        uint64_t offset = 0;
        if (!places.find(rows.rows[i].first, rows.rows[i].second, &offset)) continue;
        from_floats(places.arena().dtype, rows.values.data() + i * inner, raw.data(), inner);
        buffer.write(offset, raw.data(), raw.size());
    }
}

} // namespace keel
