#include "model/source.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
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
        return true;
    default:
        return false;
    }
}

uint64_t loaded_bytes(const TensorInfo &tensor, keel_dtype dtype) {
    if (tensor.shape.size() != 2 || (dtype == KEEL_DTYPE_NONE && tensor.packed == 0)) return tensor.bytes;
    const keel_dtype to = dtype == KEEL_DTYPE_NONE ? tensor.compute_dtype() : dtype;
    return static_cast<uint64_t>(tensor.shape[0]) *
           keel_dtype_row_bytes(to, static_cast<uint64_t>(tensor.shape[1]));
}

std::string conversion_text(const Conversion &c) {
    return fmt::format("{} {} tensor{} converted to {}: {} become {}", c.tensors, c.from,
                       c.tensors == 1 ? " is" : "s are", keel_dtype_name(c.to), format_bytes(c.stored_bytes),
                       format_bytes(c.loaded_bytes));
}

ModelSource::ModelSource(Parts parts) : parts_(std::move(parts)) {
    std::sort(parts_.tensors.begin(), parts_.tensors.end(), [](const TensorInfo &a, const TensorInfo &b) {
        return std::tie(a.file, a.offset, a.name) < std::tie(b.file, b.offset, b.name);
    });
    for (size_t i = 0; i < parts_.tensors.size(); ++i) {
        const TensorInfo &tensor = parts_.tensors[i];
        const auto [other, fresh] = by_name_.emplace(tensor.name, i);
        if (!fresh) {
            throw_error(ErrorKind::input, "{}: tensor '{}' stands in {} too", file(tensor).path(),
                        printable(tensor.name), file(parts_.tensors[other->second]).path());
        }
        total_bytes_ += tensor.bytes; // each lies inside its file, so the sum cannot wrap
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
                    parts_.stored_name ? parts_.stored_name(name) : std::string(name), shape_text(shape));
    }
    const std::string stored = printable(tensor->stored_name.empty() ? tensor->name : tensor->stored_name);
    if (!std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end())) {
        throw_error(ErrorKind::input, "{}: tensor '{}': {} asks for shape {}, found {} of {}",
                    file(*tensor).path(), stored, parts_.config_name, shape_text(shape),
                    shape_text(tensor->shape), tensor->dtype_name);
    }
    if (!is_weight_dtype(tensor->compute_dtype())) {
        throw_error(ErrorKind::input, "{}: tensor '{}': weights of type {} are not supported; supported: {}",
                    file(*tensor).path(), stored, tensor->dtype_name,
                    parts_.stored_name ? "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K"
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

// The row of the file that holds row `row` of the matrix; see TensorInfo::interleaved_heads.
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
    for (uint64_t i = 0; i < n; ++i)
        out[i] = stored[stored_row(tensor, i)];
}

bool ModelSource::in_place(const TensorInfo &tensor, keel_dtype dtype) const {
    return tensor.dtype == dtype && tensor.packed == 0 && tensor.interleaved_heads == 0;
}

void ModelSource::convert(const TensorInfo &tensor, keel_dtype dtype, void *out,
                          const ParallelFor &parallel) const {
    const auto rows = static_cast<size_t>(tensor.shape[0]), columns = static_cast<size_t>(tensor.shape[1]);
    if (tensor.dtype == dtype && tensor.packed == 0) { // the same values in another order
        const size_t row_bytes = keel_dtype_row_bytes(dtype, columns);
        for (size_t row = 0; row < rows; ++row)
            std::memcpy(static_cast<std::byte *>(out) + row * row_bytes,
                        bytes(tensor).data() + stored_row(tensor, row) * row_bytes, row_bytes);
        return;
    }
    const auto rows_of = [&](size_t row, size_t at, size_t count, float *values) {
        read(tensor, stored_row(tensor, row) * columns + at, count, values);
    };
    convert_rows(rows_of, dtype, out, rows, columns, fmt::format("{}: {}", file(tensor).path(), tensor.name),
                 parallel);
}

std::vector<Conversion> ModelSource::conversions(keel_dtype dtype) const {
    std::map<std::string, Conversion> found;
    for (const TensorInfo &tensor : tensors()) {
        if (tensor.packed == 0 || tensor.shape.size() != 2) continue;
        Conversion &c = found[tensor.dtype_name];
        c.from = tensor.dtype_name;
        c.to = dtype == KEEL_DTYPE_NONE ? tensor.compute_dtype() : dtype;
        ++c.tensors;
        c.stored_bytes += tensor.bytes;
        c.loaded_bytes += loaded_bytes(tensor, dtype);
    }
    std::vector<Conversion> all;
    for (auto &[name, conversion] : found)
        all.push_back(std::move(conversion));
    return all;
}

} // namespace keel
