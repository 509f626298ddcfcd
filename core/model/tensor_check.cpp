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
    const bool first = index == check.not_finite; // all before it, if any, were not finite
    check.low = first ? value : std::min<double>(check.low, value);
    check.high = first ? value : std::max<double>(check.high, value);
    sums.sum += value;
    sums.squares += static_cast<double>(value) * value;
}

} // namespace

TensorCheck check_tensor(const ModelSource &source, const TensorInfo &tensor) {
    constexpr uint64_t piece = 4096; // a multiple of every block
    std::array<float, piece> values;
    TensorCheck check;
    Sums sums;
    check.elements = static_cast<uint64_t>(tensor.elements());
    for (uint64_t at = 0; at < check.elements; at += piece) {
        const uint64_t count = std::min(piece, check.elements - at);
        source.read(tensor, at, count, values.data());
        for (uint64_t i = 0; i < count; ++i)
            add(check, sums, at + i, values[i]);
    }
    source.drop(tensor);
    const auto finite = static_cast<double>(check.elements - check.not_finite);
    if (finite > 0) {
        check.mean = sums.sum / finite;
        check.rms = std::sqrt(sums.squares / finite);
    }
    return check;
}

} // namespace keel
