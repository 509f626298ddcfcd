#include "kv/inputs/slot_sums.hpp"

#include "device/device.hpp"
#include "kv/inputs/input_ops.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace keel {

SlotSums::SlotSums(Executor &executor, const KvShape &shape, const Ops &ops,
                   keel_buffer_kind placement)
    : executor_(executor), shape_(shape), ops_(ops), placement_(placement), layers_(shape.layers) {
    clean_.assign(size_t{shape.layers} * shape.kv_heads, 0);
}

int64_t SlotSums::capacity_for(const KvShape &shape, int64_t length) {
    length = std::max<int64_t>(length, 1);
    const auto below = std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(length - 1, 1)));
    const int64_t step = std::max<int64_t>(64, static_cast<int64_t>(below) / 4);
    return std::min((length + step - 1) / step * step, shape.blocks_per_head() * shape.block_slots);
}

// Keeps the sums of slots that exist in both the old and the new memory.
void SlotSums::resize(int64_t slots) {
    const auto rows = std::ssize(clean_);
    const Tensor old = all_;
    all_ = Tensor::allocate(executor_.device(), KEEL_DTYPE_F32, {rows, slots}, placement_);
    for (uint32_t l = 0; l < shape_.layers; ++l)
        layers_[l] = all_.rows(int64_t{l} * shape_.kv_heads, shape_.kv_heads);
    if (old.empty()) return;
    const int64_t kept = std::min(slots, old.dim(1));
    const Tensor from = old.columns(0, kept), to = all_.columns(0, kept);
    keel_move_args args = {KEEL_HEADER(keel_move_args)};
    args.x = from.c();
    args.out = to.c();
    executor_.run(*ops_.grow, args);
    for (int64_t &clean : clean_) clean = std::min(clean, slots);
}

void SlotSums::zero(int64_t row, int64_t rows, int64_t from, int64_t to) {
    for (int64_t end; from < to; from = end) {
        end = std::min(to, from + InputOps::clear_slots);
        const Tensor some = all_.rows(row, rows).columns(from, end - from);
        keel_move_args args = {KEEL_HEADER(keel_move_args)};
        args.out = some.c();
        executor_.run(*ops_.clear, args);
    }
}

void SlotSums::begin(const KvCache &cache) {
    const int64_t longest = cache.max_length();
    if (all_.empty() || all_.dim(1) < longest) resize(capacity_for(shape_, longest));
    const auto rows = std::ssize(clean_);
    const auto length = [&](int64_t row) { return cache.row_length(static_cast<size_t>(row)); };
    // Neighbouring rows with equal `clean_` are cleared together. Usually all rows are equal.
    for (int64_t row = 0; row < rows;) {
        const int64_t from = clean_[static_cast<size_t>(row)], used = length(row);
        if (used <= from) {
            ++row;
            continue;
        }
        const int64_t to = std::min(all_.dim(1), std::max(used, from + InputOps::clear_slots));
        int64_t end = row;
        while (end < rows && clean_[static_cast<size_t>(end)] == from && length(end) <= to) {
            clean_[static_cast<size_t>(end)] = to;
            ++end;
        }
        zero(row, end - row, from, to);
        row = end;
    }
}

void SlotSums::fit(const KvCache &cache) {
    const int64_t slots = capacity_for(shape_, cache.max_length());
    if (!all_.empty() && slots < all_.dim(1)) resize(slots);
}

void SlotSums::shrunk(const KvCache &cache) {
    for (size_t row = 0; row < clean_.size(); ++row)
        clean_[row] = std::min(clean_[row], cache.row_length(row));
}

void SlotSums::copy_to(int64_t first, const Tensor &out) const {
    const Tensor used = all_.rows(first, out.dim(0)).columns(0, out.dim(1));
    keel_move_args args = {KEEL_HEADER(keel_move_args)};
    args.x = used.c();
    args.out = out.c();
    executor_.run(*ops_.read, args);
}

// Returns the sums of a row's first n slots. The sum of a slot to which no step has added is 0.
std::vector<float> SlotSums::read_row(size_t row, int64_t n) const {
    std::vector<float> values(static_cast<size_t>(n));
    const auto used = static_cast<size_t>(std::min(n, clean_[row]));
    if (used > 0)
        all_.buffer()->read(all_.offset() +
                                row * static_cast<uint64_t>(all_.dim(1)) * sizeof(float),
                            values.data(), used * sizeof(float));
    return values;
}

void SlotSums::write_row(size_t row, const std::vector<float> &values) {
    if (!values.empty())
        all_.buffer()->write(all_.offset() +
                                 row * static_cast<uint64_t>(all_.dim(1)) * sizeof(float),
                             values.data(), values.size() * sizeof(float));
    clean_[row] = std::ssize(values);
}

void SlotSums::save(StateWriter &out, const KvCache &cache) const {
    for (size_t row = 0; row < clean_.size(); ++row)
        out.put_all<float>(read_row(row, cache.row_length(row)));
}

void SlotSums::load(StateReader &in, const KvCache &cache) {
    clear();
    resize(capacity_for(shape_, cache.max_length()));
    std::vector<float> values;
    for (size_t row = 0; row < clean_.size(); ++row) {
        in.get_all<float>(values, static_cast<uint64_t>(cache.row_length(row)), "a head's scores");
        for (const float v : values) {
            if (!std::isfinite(v))
                in.fail("scores of a head: a value is not finite; the file is damaged");
        }
        write_row(row, values);
    }
}

void SlotSums::copy_from(const SlotSums &other, const KvCache &cache) {
    clear();
    resize(capacity_for(shape_, cache.max_length()));
    for (size_t row = 0; row < clean_.size(); ++row)
        write_row(row, other.read_row(row, cache.row_length(row)));
}

void SlotSums::clear() {
    all_ = {};
    std::fill(clean_.begin(), clean_.end(), 0);
}

} // namespace keel
