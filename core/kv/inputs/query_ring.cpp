#include "kv/inputs/query_ring.hpp"

#include "device/device.hpp"
#include "numbers/convert.hpp"

#include <algorithm>
#include <utility>

namespace keel {

QueryRing::QueryRing(Executor &executor, PlannedOp *shift, PlannedOp *place, keel_dtype dtype,
                     uint32_t layers, int64_t rows, uint32_t heads, uint32_t head_dim,
                     keel_buffer_kind placement)
    : executor_(executor), shift_(shift), place_(place), dtype_(dtype), layers_(layers),
      heads_(heads), head_dim_(head_dim), rows_(rows),
      row_bytes_(keel_dtype_row_bytes(dtype, int64_t{heads} * head_dim)), placement_(placement) {}

void QueryRing::make() {
    if (!all_.empty()) return;
    all_ = Tensor::allocate(executor_.device(), dtype_, {layers_, 2 * rows_ * heads_ * head_dim_},
                            placement_);
    if (place_ != nullptr)
        step_ = Tensor::allocate(executor_.device(), dtype_, {layers_, int64_t{heads_} * head_dim_},
                                 placement_);
}

void QueryRing::place_last() {
    if (!std::exchange(waits_, false)) return;
    const int64_t width = int64_t{heads_} * head_dim_;
    const Tensor to = all_.columns((end_ - 1) * width, width);
    keel_move_args args = {KEEL_HEADER(keel_move_args)};
    args.x = step_.c();
    args.out = to.c();
    executor_.run(*place_, args);
}

Tensor QueryRing::next(uint32_t layer) const {
    return place_ == nullptr ? last(layer, 1)
                             : step_.rows(layer, 1).reshape({1, heads_, head_dim_});
}

void QueryRing::begin(int64_t n) {
    make();
    place_last();
    const int64_t coming = std::min(n, rows_), width = int64_t{heads_} * head_dim_;
    if (end_ + coming > 2 * rows_) {
        const int64_t kept = std::min(held_, rows_ - coming);
        if (kept > 0) { // from behind the middle to before it
            const Tensor from = all_.columns((end_ - kept) * width, kept * width);
            const Tensor to = all_.columns(0, kept * width);
            keel_move_args args = {KEEL_HEADER(keel_move_args)};
            args.x = from.c();
            args.out = to.c();
            executor_.run(*shift_, args);
        }
        end_ = held_ = kept;
    }
    end_ += coming;
    held_ = std::min(held_ + coming, rows_);
    waits_ = n == 1 && place_ != nullptr;
}

Tensor QueryRing::last(uint32_t layer, int64_t n) const {
    return all_.rows(layer, 1).reshape({2 * rows_, heads_, head_dim_}).rows(end_ - n, n);
}

void QueryRing::drop(int64_t n) {
    const int64_t dropped = std::min(n, held_);
    held_ -= dropped;
    end_ -= dropped;
    if (dropped > 0) waits_ = false; // the last one
    if (held_ == 0) end_ = 0;
}

void QueryRing::copy_from(QueryRing &other) {
    if (other.held_ == 0) return clear();
    const int64_t kept = std::min(other.held_, rows_);
    const std::vector<std::byte> rows = other.read();
    std::vector<std::byte> mine(layers_ * static_cast<size_t>(kept) * row_bytes_);
    for (size_t l = 0; l < layers_; ++l) {
        const size_t from =
            ((l + 1) * static_cast<size_t>(other.held_) - static_cast<size_t>(kept)) * row_bytes_;
        std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(from),
                    static_cast<size_t>(kept) * row_bytes_,
                    mine.begin() +
                        static_cast<std::ptrdiff_t>(l * static_cast<size_t>(kept) * row_bytes_));
    }
    write(mine, kept);
}

void QueryRing::take_over(QueryRing &other) {
    std::vector<std::byte> rows = other.read();
    if (other.dtype_ != dtype_ && !rows.empty()) {
        const size_t count = layers_ * static_cast<size_t>(other.held_) * heads_ * head_dim_;
        std::vector<float> floats(count);
        convert_to_f32(other.dtype_, rows.data(), floats.data(), count);
        rows.resize(layers_ * static_cast<size_t>(other.held_) * row_bytes_);
        convert_from_f32(dtype_, floats.data(), rows.data(), count);
    }
    write(rows, other.held_);
}

std::vector<std::byte> QueryRing::read() {
    place_last();
    std::vector<std::byte> out(layers_ * static_cast<size_t>(held_) * row_bytes_);
    for (uint32_t l = 0; held_ > 0 && l < layers_; ++l)
        last(l, held_).read(out.data() + l * static_cast<size_t>(held_) * row_bytes_);
    return out;
}

void QueryRing::write(const std::vector<std::byte> &rows, int64_t held) {
    held_ = end_ = held;
    waits_ = false;
    if (held == 0) return;
    make();
    for (uint32_t l = 0; l < layers_; ++l)
        last(l, held).write(rows.data() + l * static_cast<size_t>(held) * row_bytes_);
}

} // namespace keel
