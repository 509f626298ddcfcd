#include "graph/rope_tables.hpp"

#include "base/error.hpp"
#include "device/device.hpp"

#include <algorithm>
#include <cmath>

namespace keel {
namespace {

keel_rope_mode rope_mode(const ModelConfig &c) {
    return c.rope_interleaved ? KEEL_ROPE_INTERLEAVED : KEEL_ROPE_HALF_SPLIT;
}

} // namespace

RopeTables::RopeTables(RopeAngles angles, int64_t rows, keel_rope_mode mode)
    : angles_(std::move(angles)), held_(static_cast<size_t>(rows), -1) {
    const auto half = static_cast<int64_t>(angles_.frequencies.size());
    cos_ = Tensor::shape(KEEL_DTYPE_F32, {rows, half});
    sin_ = cos_;
    tables_.cos = cos_.c();
    tables_.sin = sin_.c();
    tables_.mode = mode;
    tables_.rot = static_cast<uint32_t>(2 * half);
}

void RopeTables::place(Device &device, keel_buffer_kind kind) {
    // Assigns to the existing members, because tables_ points to their descriptors.
    cos_ = Tensor::allocate(device, KEEL_DTYPE_F32, {rows(), cos_.dim(1)}, kind);
    sin_ = Tensor::allocate(device, KEEL_DTYPE_F32, {rows(), cos_.dim(1)}, kind);
    std::fill(held_.begin(), held_.end(), -1);
}

void RopeTables::ensure(std::span<const int32_t> positions) {
    // One write covers rows that are neighbours in the tables. So the rows of a prefill need one
    // write.
    for (size_t i = 0; i < positions.size();) {
        const int64_t first = positions[i] % rows();
        int64_t row = first;
        scratch_.clear();
        while (i < positions.size() && row < rows() && positions[i] % rows() == row &&
               held_[static_cast<size_t>(row)] != positions[i]) {
            held_[static_cast<size_t>(row)] = -1; // invalid until the write succeeds
            for (const double f : angles_.frequencies)
                scratch_.push_back(static_cast<float>(angles_.factor * std::cos(positions[i] * f)));
            for (const double f : angles_.frequencies)
                scratch_.push_back(static_cast<float>(angles_.factor * std::sin(positions[i] * f)));
            ++i;
            ++row;
        }
        if (row == first) { // the table already has the row
            ++i;
            continue;
        }
        write_rows(first, row - first);
        const std::span<const int32_t> written =
            positions.subspan(i - static_cast<size_t>(row - first));
        std::copy_n(written.begin(), row - first,
                    held_.begin() + static_cast<std::ptrdiff_t>(first));
    }
}

bool RopeTables::collide(std::span<const int32_t> positions) {
    row_and_position_.clear();
    for (const int32_t p : positions) row_and_position_.emplace_back(p % rows(), p);
    std::sort(row_and_position_.begin(), row_and_position_.end());
    const auto found = std::adjacent_find(
        row_and_position_.begin(), row_and_position_.end(),
        [](const auto &a, const auto &b) { return a.first == b.first && a.second != b.second; });
    return found != row_and_position_.end();
}

// scratch_ has one row after the other. Each row has its cosines first, then its sines.
void RopeTables::write_rows(int64_t first, int64_t n) {
    const size_t half = angles_.frequencies.size();
    split_.resize(static_cast<size_t>(n) * half);
    for (const auto &[tensor, at] : {std::pair{&cos_, size_t{0}}, std::pair{&sin_, half}}) {
        for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
            std::copy_n(scratch_.begin() + static_cast<std::ptrdiff_t>(2 * half * r + at), half,
                        split_.begin() + static_cast<std::ptrdiff_t>(half * r));
        }
        tensor->rows(first, n).write(split_.data());
    }
}

LayerRopes::LayerRopes(const ModelConfig &c, int64_t rows, int64_t context)
    : config_(c), all_(model_rope(c, context), rows, rope_mode(c)) {
    if (c.has_two_ropes()) own_.emplace(own_rope(c), rows, rope_mode(c));
}

void LayerRopes::place(Device &device, keel_buffer_kind kind) {
    all_.place(device, kind);
    if (own_) own_->place(device, kind);
}

void LayerRopes::ensure(std::span<const int32_t> positions) {
    all_.ensure(positions);
    if (own_) own_->ensure(positions);
}

} // namespace keel
