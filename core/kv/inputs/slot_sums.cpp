#include "kv/inputs/slot_sums.hpp"

#include "device/device.hpp"
#include "kv/inputs/input_ops.hpp"

#include <algorithm>
#include <cmath>

namespace keel {

SlotSums::SlotSums(Executor &executor, const KvShape &shape, PlannedOp *clear, PlannedOp *copy,
                   keel_buffer_kind placement)
    : executor_(executor), clear_(clear), copy_(copy) {
    const int64_t rows = int64_t{shape.layers} * shape.kv_heads;
    all_ = Tensor::allocate(executor.device(), KEEL_DTYPE_F32,
                            {rows, shape.blocks_per_head() * shape.block_slots}, placement);
    for (uint32_t l = 0; l < shape.layers; ++l)
        layers_.push_back(all_.rows(int64_t{l} * shape.kv_heads, shape.kv_heads));
    clean_.assign(static_cast<size_t>(rows), 0);
}

void SlotSums::zero(int64_t row, int64_t rows, int64_t from, int64_t to) {
    const Tensor some = all_.rows(row, rows).columns(from, to - from);
    keel_move_args args = {KEEL_HEADER(keel_move_args)};
    args.out = some.c();
    executor_.run(*clear_, args);
}

void SlotSums::begin(const KvCache &cache) {
    const auto rows = std::ssize(clean_);
    const auto length = [&](int64_t row) { return cache.row_length(static_cast<size_t>(row)); };
    // Rows that are alike go together: all of them, as a rule.
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

void SlotSums::shrunk(const KvCache &cache) {
    for (size_t row = 0; row < clean_.size(); ++row)
        clean_[row] = std::min(clean_[row], cache.row_length(row));
}

void SlotSums::copy_to(const Tensor &out) const {
    const Tensor used = all_.rows(0, out.dim(0)).columns(0, out.dim(1));
    keel_move_args args = {KEEL_HEADER(keel_move_args)};
    args.x = used.c();
    args.out = out.c();
    executor_.run(*copy_, args);
}

std::vector<float> SlotSums::read_row(size_t row, int64_t n) const {
    std::vector<float> values(static_cast<size_t>(n));
    if (n > 0)
        all_.buffer()->read(all_.offset() +
                                row * static_cast<uint64_t>(all_.dim(1)) * sizeof(float),
                            values.data(), values.size() * sizeof(float));
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
    std::vector<float> values;
    for (size_t row = 0; row < clean_.size(); ++row) {
        in.get_all<float>(values, static_cast<uint64_t>(cache.row_length(row)), "a head's scores");
        for (const float v : values) {
            if (!std::isfinite(v)) in.fail("a head's scores: one is not finite");
        }
        write_row(row, values);
    }
}

void SlotSums::copy_from(const SlotSums &other, const KvCache &cache) {
    for (size_t row = 0; row < clean_.size(); ++row)
        write_row(row, other.read_row(row, cache.row_length(row)));
}

void SlotSums::clear() { std::fill(clean_.begin(), clean_.end(), 0); }

} // namespace keel
