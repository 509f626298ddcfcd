#include "kv/inputs/query_ring.hpp"

#include "device/device.hpp"
#include "numbers/convert.hpp"

#include <algorithm>
#include <utility>

namespace keel {

QueryRing::QueryRing(Executor &executor, const Ops &ops, keel_dtype dtype, uint32_t layers,
                     int64_t rows, uint32_t heads, uint32_t head_dim, keel_buffer_kind placement)
    : executor_(executor), ops_(ops), dtype_(dtype), layers_(layers), heads_(heads),
      head_dim_(head_dim), rows_(rows),
      row_bytes_(keel_dtype_row_bytes(dtype, int64_t{heads} * head_dim)), placement_(placement) {}

void QueryRing::make() {
    if (!all_.empty()) return;
    all_ = Tensor::allocate(executor_.device(), dtype_, {layers_, rows_ * heads_ * head_dim_},
                            placement_);
    if (ops_.place != nullptr)
        step_ = Tensor::allocate(executor_.device(), dtype_, {layers_, int64_t{heads_} * head_dim_},
                                 placement_);
}

void QueryRing::copy(PlannedOp &op, const Tensor &from, const Tensor &to) const {
    keel_move_args args = {KEEL_HEADER(keel_move_args)};
    args.x = from.c();
    args.out = to.c();
    executor_.run(op, args);
}

Tensor QueryRing::layer_rows(uint32_t layer, int64_t from, int64_t n) const {
    return all_.rows(layer, 1).reshape({rows_, heads_, head_dim_}).rows(from, n);
}

template <typename Run> void QueryRing::for_runs(int64_t n, const Run &run) const {
    const int64_t first = (end_ - n + rows_) % rows_, to_the_end = std::min(n, rows_ - first);
    if (to_the_end > 0) run(first, to_the_end, int64_t{0});
    if (n > to_the_end) run(int64_t{0}, n - to_the_end, to_the_end);
}

void QueryRing::place_last() {
    if (!std::exchange(waits_, false)) return;
    const int64_t width = int64_t{heads_} * head_dim_;
    copy(*ops_.place, step_, all_.columns((end_ + rows_ - 1) % rows_ * width, width));
}

Tensor QueryRing::next(uint32_t layer) const {
    if (ops_.place == nullptr) return layer_rows(layer, (end_ + rows_ - 1) % rows_, 1);
    return step_.rows(layer, 1).reshape({1, heads_, head_dim_});
}

void QueryRing::begin(int64_t n) {
    make();
    place_last();
    const int64_t coming = std::min(n, rows_);
    end_ = (end_ + coming) % rows_;
    held_ = std::min(held_ + coming, rows_);
    waits_ = n == 1 && ops_.place != nullptr;
}

void QueryRing::keep(uint32_t layer, const Tensor &q) {
    const int64_t kept = std::min(q.dim(0), rows_), skipped = q.dim(0) - kept;
    for_runs(kept, [&](int64_t from, int64_t n, int64_t done) {
        copy(*ops_.keep, q.rows(skipped + done, n), layer_rows(layer, from, n));
    });
}

void QueryRing::gather(uint32_t layer, int64_t n, const Tensor &out) {
    const int64_t width = int64_t{heads_} * head_dim_;
    const Tensor flat = out.reshape({1, n * width}), rows = all_.rows(layer, 1);
    for_runs(n, [&](int64_t from, int64_t count, int64_t done) {
        copy(*ops_.order, rows.columns(from * width, count * width),
             flat.columns(done * width, count * width));
    });
}

void QueryRing::drop(int64_t n) {
    const int64_t dropped = std::min(n, held_);
    held_ -= dropped;
    end_ = (end_ - dropped + rows_) % rows_;
    if (dropped > 0)
        waits_ = false; // the query in the fixed place was the last query, and it is dropped
}

void QueryRing::take_over(QueryRing &other) {
    if (other.held_ == 0) return clear();
    const int64_t kept = std::min(other.held_, rows_);
    const std::vector<std::byte> rows = other.read();
    const auto of_layer = static_cast<size_t>(kept) * other.row_bytes_;
    std::vector<std::byte> mine(layers_ * of_layer);
    for (size_t l = 0; l < layers_; ++l) {
        const size_t from = (l + 1) * static_cast<size_t>(other.held_) * other.row_bytes_;
        std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(from - of_layer), of_layer,
                    mine.begin() + static_cast<std::ptrdiff_t>(l * of_layer));
    }
    if (other.dtype_ != dtype_) {
        const size_t count = layers_ * static_cast<size_t>(kept) * heads_ * head_dim_;
        std::vector<float> floats(count);
        convert_to_f32(other.dtype_, mine.data(), floats.data(), count);
        mine.resize(layers_ * static_cast<size_t>(kept) * row_bytes_);
        convert_from_f32(dtype_, floats.data(), mine.data(), count);
    }
    write(mine, kept);
}

std::vector<std::byte> QueryRing::read() {
    place_last();
    const auto of_layer = static_cast<size_t>(held_) * row_bytes_;
    std::vector<std::byte> out(layers_ * of_layer);
    for (uint32_t l = 0; held_ > 0 && l < layers_; ++l) {
        for_runs(held_, [&](int64_t from, int64_t n, int64_t done) {
            layer_rows(l, from, n)
                .read(out.data() + l * of_layer + static_cast<size_t>(done) * row_bytes_);
        });
    }
    return out;
}

void QueryRing::write(const std::vector<std::byte> &rows, int64_t held) {
    clear();
    if (held == 0) return;
    held_ = held;
    end_ = held % rows_;
    make();
    for (uint32_t l = 0; l < layers_; ++l)
        layer_rows(l, 0, held).write(rows.data() + l * static_cast<size_t>(held) * row_bytes_);
}

} // namespace keel
