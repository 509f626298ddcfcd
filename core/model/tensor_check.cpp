#include "model/tensor_check.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace keel {
namespace {

struct Sums {
    double sum = 0;
    double squares = 0;
};

void add(TensorCheck &check, Sums &sums, uint64_t index, float value) {
    if (!std::isfinite(value)) {
        if (!check.first_not_finite) check.first_not_finite = index;
        ++check.not_finite;
        return;
    }
    const bool first = index == check.not_finite; // true for the first value that is not finite
    check.low = first ? value : std::min<double>(check.low, value);
    check.high = first ? value : std::max<double>(check.high, value);
    sums.sum += value;
    sums.squares += static_cast<double>(value) * value;
}

std::vector<int64_t> index_of(uint64_t flat, const std::vector<int64_t> &shape) {
    std::vector<int64_t> index(shape.size());
    for (size_t i = shape.size(); i-- > 0;) {
        const auto dim = static_cast<uint64_t>(std::max<int64_t>(shape[i], 1));
        index[i] = static_cast<int64_t>(flat % dim);
        flat /= dim;
    }
    return index;
}

} // namespace

TensorCheck check_tensor(const ModelSource &source, const TensorInfo &tensor) {
    constexpr uint64_t piece = 4096; // a multiple of every block size
    std::array<float, piece> values;
    TensorCheck check;
    Sums sums;
    check.elements = static_cast<uint64_t>(tensor.elements());
    for (uint64_t at = 0; at < check.elements; at += piece) {
        const uint64_t count = std::min(piece, check.elements - at);
        source.read(tensor, at, count, values.data());
        for (uint64_t i = 0; i < count; ++i) add(check, sums, at + i, values[i]);
    }
    source.drop(tensor);
    const auto finite = static_cast<double>(check.elements - check.not_finite);
    if (finite > 0) {
        check.mean = sums.sum / finite;
        check.rms = std::sqrt(sums.squares / finite);
    }
    return check;
}

void WeightsCheck::work(const std::function<bool(uint64_t)> &progress) {
    for (size_t i = next_++; i < source_.tensors().size(); i = next_++) {
        const TensorInfo &tensor = source_.tensors()[i];
        try {
            const TensorCheck check = check_tensor(source_, tensor);
            if (check.first_not_finite) {
                bad_[i] = BadTensor{tensor.stored_name.empty() ? tensor.name : tensor.stored_name,
                                    source_.file(tensor).path(), check.elements, check.not_finite,
                                    index_of(*check.first_not_finite, tensor.shape)};
            }
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (!error_) error_ = std::current_exception();
            next_ = source_.tensors().size();
        }
        if (!progress(done_ += tensor.bytes)) return;
    }
}

std::vector<BadTensor> WeightsCheck::result() {
    if (error_) std::rethrow_exception(error_);
    std::vector<BadTensor> found;
    for (std::optional<BadTensor> &one : bad_) {
        if (one) found.push_back(*std::move(one));
    }
    return found;
}

} // namespace keel
