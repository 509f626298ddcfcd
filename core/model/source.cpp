#include "model/source.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <algorithm>
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
        throw_error(ErrorKind::input, "{}: tensor '{}' is missing; expected shape {}", path(), name,
                    shape_text(shape));
    }
    if (!std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end())) {
        throw_error(ErrorKind::input, "{}: tensor '{}': config.json asks for shape {}, found {} of {}",
                    file(*tensor).path(), name, shape_text(shape), shape_text(tensor->shape),
                    tensor->dtype_name);
    }
    if (!is_weight_dtype(tensor->dtype)) {
        throw_error(ErrorKind::input, "{}: tensor '{}': expected F32, F16 or BF16, found {}",
                    file(*tensor).path(), name, tensor->dtype_name);
    }
    return *tensor;
}

} // namespace keel
