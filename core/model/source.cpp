#include "model/source.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "device/device.hpp"
#include "format/ggml_blocks.hpp"
#include "format/ggml_type.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

namespace keel {

bool is_weight_dtype(keel_dtype type) {
    switch (type) {
    case KEEL_DTYPE_F32:
    case KEEL_DTYPE_F16:
    case KEEL_DTYPE_BF16:
    case KEEL_DTYPE_Q8_0:
    case KEEL_DTYPE_Q4_0:
    case KEEL_DTYPE_Q4_K:
    case KEEL_DTYPE_Q5_K:
    case KEEL_DTYPE_Q6_K: return true;
    default: return false;
    }
}

keel_dtype loaded_dtype(const TensorInfo &tensor, keel_dtype asked, uint64_t weight_dtypes) {
    if (asked != KEEL_DTYPE_NONE) return asked;
    const bool is_taken = tensor.packed == 0 && (takes_weights_of(weight_dtypes, tensor.dtype) ||
                                                 keel_dtype_weights_only(tensor.dtype) == 0);
    return is_taken ? tensor.dtype : keel_dtype{KEEL_DTYPE_Q8_0};
}

uint64_t loaded_bytes(const TensorInfo &tensor, keel_dtype asked, uint64_t weight_dtypes) {
    const keel_dtype to = loaded_dtype(tensor, asked, weight_dtypes);
    if (tensor.shape.size() != 2 || (tensor.packed == 0 && to == tensor.dtype)) return tensor.bytes;
    return static_cast<uint64_t>(tensor.shape[0]) *
           keel_dtype_row_bytes(to, static_cast<uint64_t>(tensor.shape[1]));
}

std::string conversion_text(const Conversion &c) {
    return fmt::format("{} {} tensor{} converted to {}: {} become {}", c.tensors, c.from,
                       c.tensors == 1 ? " is" : "s are", keel_dtype_name(c.to),
                       format_bytes(c.stored_bytes), format_bytes(c.loaded_bytes));
}

ModelSource::ModelSource(Parts parts) : parts_(std::move(parts)) {
    std::sort(parts_.tensors.begin(), parts_.tensors.end(),
              [](const TensorInfo &a, const TensorInfo &b) {
                  return std::tie(a.file, a.offset, a.name) < std::tie(b.file, b.offset, b.name);
              });
    for (size_t i = 0; i < parts_.tensors.size(); ++i) {
        const TensorInfo &tensor = parts_.tensors[i];
        const auto [other, fresh] = by_name_.emplace(tensor.name, i);
        if (!fresh) {
            throw_error(ErrorKind::input, "{}: tensor '{}' is also in {}; remove one of the two",
                        file(tensor).path(), printable(tensor.name),
                        file(parts_.tensors[other->second]).path());
        }
        total_bytes_ += tensor.bytes; // each tensor is inside its file, so the sum cannot overflow
    }
}

std::span<const std::byte> ModelSource::bytes(const TensorInfo &tensor) const {
    return file(tensor).bytes().subspan(static_cast<size_t>(tensor.offset),
                                        static_cast<size_t>(tensor.bytes));
}

const TensorInfo *ModelSource::find(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &parts_.tensors[found->second];
}

const TensorInfo &ModelSource::expect(std::string_view name, std::span<const int64_t> shape) const {
    const TensorInfo *tensor = find(name);
    if (tensor == nullptr) {
        throw_error(ErrorKind::input, "{}: tensor '{}' is missing; expected shape {}", path(),
                    parts_.stored_name ? parts_.stored_name(name) : std::string(name),
                    shape_text(shape));
    }
    const std::string stored =
        printable(tensor->stored_name.empty() ? tensor->name : tensor->stored_name);
    if (!std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end())) {
        throw_error(ErrorKind::input, "{}: tensor '{}': {} requires shape {}, found {} of {}",
                    file(*tensor).path(), stored, parts_.config_name, shape_text(shape),
                    shape_text(tensor->shape), tensor->dtype_name);
    }
    if (tensor->packed == 0 && !is_weight_dtype(tensor->dtype)) {
        throw_error(ErrorKind::input,
                    "{}: tensor '{}': weights of type {} are not supported; supported: {}",
                    file(*tensor).path(), stored, tensor->dtype_name,
                    parts_.stored_name
                        ? "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K"
                        : "F32, F16, BF16");
    }
    return *tensor;
}

void ModelSource::read(const TensorInfo &tensor, uint64_t first, uint64_t count, float *out) const {
    const std::byte *data = bytes(tensor).data();
    if (tensor.packed != 0) {
        const GgmlType &type = *find_ggml_type(tensor.packed);
        decode_ggml_blocks(tensor.packed, data + first / type.block * type.bytes, out, count);
        return;
    }
    if (!is_weight_dtype(tensor.dtype)) {
        throw_error(ErrorKind::input, "{}: tensor '{}': values of type {} cannot be read",
                    file(tensor).path(), printable(tensor.name), tensor.dtype_name);
    }
    convert_to_f32(tensor.dtype, data + keel_dtype_row_bytes(tensor.dtype, first), out, count);
}

namespace {

// Converts the index of a row in the model's matrix to the index of the same row in the file. The
// two differ if the file interleaves the rows of a head; see TensorInfo::interleaved_heads.
uint64_t stored_row(const TensorInfo &tensor, uint64_t row) {
    if (tensor.interleaved_heads == 0) return row;
    const uint64_t n = static_cast<uint64_t>(tensor.shape[0] / tensor.interleaved_heads);
    const uint64_t head = row / n, within = row % n;
    return head * n + 2 * (within % (n / 2)) + within / (n / 2);
}

} // namespace

void ModelSource::read_vector(const TensorInfo &tensor, float *out) const {
    const auto n = static_cast<uint64_t>(tensor.elements());
    if (tensor.interleaved_heads == 0) {
        read(tensor, 0, n, out);
        return;
    }
    std::vector<float> stored(n);
    read(tensor, 0, n, stored.data());
    for (uint64_t i = 0; i < n; ++i) out[i] = stored[stored_row(tensor, i)];
}

bool ModelSource::in_place(const TensorInfo &tensor, keel_dtype dtype) const {
    return tensor.dtype == dtype && tensor.packed == 0 && tensor.interleaved_heads == 0;
}

void ModelSource::convert(const TensorInfo &tensor, keel_dtype dtype, void *out,
                          const ParallelFor &parallel) const {
    const auto rows = static_cast<size_t>(tensor.shape[0]),
               columns = static_cast<size_t>(tensor.shape[1]);
    if (tensor.dtype == dtype && tensor.packed == 0) { // same values, rows in another order
        const size_t row_bytes = keel_dtype_row_bytes(dtype, columns);
        const size_t per_task =
            std::max<size_t>(1, (size_t{1} << 18) / std::max<size_t>(row_bytes, 1));
        const auto body = [&](size_t task) {
            for (size_t row = task * per_task; row < std::min(rows, (task + 1) * per_task); ++row)
                std::memcpy(static_cast<std::byte *>(out) + row * row_bytes,
                            bytes(tensor).data() + stored_row(tensor, row) * row_bytes, row_bytes);
        };
        const size_t tasks = (rows + per_task - 1) / per_task;
        if (parallel) return parallel(tasks, body);
        for (size_t task = 0; task < tasks; ++task) body(task);
        return;
    }
    const auto rows_of = [&](size_t row, size_t at, size_t count, float *values) {
        read(tensor, stored_row(tensor, row) * columns + at, count, values);
    };
    convert_rows(rows_of, dtype, out, rows, columns,
                 fmt::format("{}: {}", file(tensor).path(), tensor.name), parallel);
}

std::vector<Conversion> ModelSource::conversions(keel_dtype dtype, uint64_t weight_dtypes) const {
    std::map<std::string, Conversion> found;
    for (const TensorInfo &tensor : tensors()) {
        const keel_dtype to = loaded_dtype(tensor, dtype, weight_dtypes);
        const bool is_common = tensor.packed == 0 && keel_dtype_weights_only(tensor.dtype) == 0;
        if (is_common || to == tensor.dtype || tensor.shape.size() != 2) continue;
        Conversion &c = found[tensor.dtype_name];
        c.from = tensor.dtype_name;
        c.to = to;
        ++c.tensors;
        c.stored_bytes += tensor.bytes;
        c.loaded_bytes += loaded_bytes(tensor, dtype, weight_dtypes);
    }
    std::vector<Conversion> all;
    for (auto &[name, conversion] : found) all.push_back(std::move(conversion));
    return all;
}

} // namespace keel
