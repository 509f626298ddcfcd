#include "kv/inputs/query_stats.hpp"

#include "device/device.hpp"

#include <algorithm>
#include <cmath>

namespace keel {

QueryStats::QueryStats(Executor &executor, const KvShape &shape, PlannedOp *op, uint32_t skip,
                       keel_buffer_kind placement)
    : executor_(executor), shape_(shape), op_(op), skip_(skip), placement_(placement) {}

void QueryStats::make() {
    if (!sum_.empty()) return;
    const KvShape &s = shape_;
    const int64_t rows = int64_t{s.layers} * s.heads, dim = s.head_dim;
    Device &device = executor_.device();
    const keel_buffer_kind kind = read_back_kind(device, placement_);
    sum_ = Tensor::allocate(device, KEEL_DTYPE_F32, {rows, dim}, kind);
    second_ = Tensor::allocate(device, KEEL_DTYPE_F32, {rows, dim, dim}, kind);
    clear();
}

// The queries of a prompt are added layer by layer. The query of a decoded token waits until there
// are stats_rows such queries.
void QueryStats::make_room() {
    const int64_t width = int64_t{shape_.heads} * shape_.head_dim;
    Device &device = executor_.device();
    if (step_ == 1) {
        if (waiting_rows_.empty())
            waiting_rows_ = Tensor::allocate(
                device, KEEL_DTYPE_F32, {shape_.layers, InputOps::stats_rows * width}, placement_);
        return;
    }
    waiting_rows_ = {};
    if (!step_queries_.empty() && step_queries_.dim(0) >= step_) return;
    step_queries_ = {};
    step_queries_ = Tensor::allocate(device, KEEL_DTYPE_F32, {step_, shape_.heads, shape_.head_dim},
                                     placement_);
}

uint64_t QueryStats::bytes(const KvShape &s, int64_t step_tokens) {
    const uint64_t dim = s.head_dim, heads = s.heads;
    const uint64_t of_steps = heads * dim *
                              std::max<uint64_t>(static_cast<uint64_t>(step_tokens),
                                                 s.layers * uint64_t{InputOps::stats_rows});
    return (s.layers * heads * (dim + dim * dim) + of_steps) * sizeof(float);
}

void QueryStats::clear() {
    count_ = waiting_ = 0;
    if (sum_.empty()) return;
    sum_.write(std::vector<float>(sum_.bytes() / sizeof(float)).data());
    second_.write(std::vector<float>(second_.bytes() / sizeof(float)).data());
}

void QueryStats::begin(int64_t first, int64_t n) {
    make();
    step_ = n;
    left_out_ = std::clamp<int64_t>(skip_ - first, 0, n);
    if (n > 1 || waiting_ == InputOps::stats_rows) add_waiting();
    if (left_out_ == n) return;
    make_room();
    count_ += n - left_out_;
    if (n == 1) ++waiting_;
}

const Tensor *QueryStats::place(uint32_t layer) {
    if (left_out_ == step_) return nullptr;
    if (step_ > 1) {
        place_ = step_queries_.rows(0, step_);
    } else {
        place_ = waiting_rows_.rows(layer, 1)
                     .reshape({InputOps::stats_rows, shape_.heads, shape_.head_dim})
                     .rows(waiting_ - 1, 1);
    }
    return &place_;
}

void QueryStats::written(uint32_t layer) {
    if (step_ > 1 && left_out_ < step_)
        add(layer, step_queries_.rows(left_out_, step_ - left_out_));
}

void QueryStats::add(uint32_t layer, const Tensor &queries) {
    const Tensor sum = sum_.rows(int64_t{layer} * shape_.heads, shape_.heads);
    const Tensor second = second_.rows(int64_t{layer} * shape_.heads, shape_.heads);
    keel_query_stats_args args = {KEEL_HEADER(keel_query_stats_args)};
    args.q = queries.c();
    args.sum = sum.c();
    args.second = second.c();
    executor_.run(*op_, args);
}

void QueryStats::add_waiting() {
    make();
    for (uint32_t l = 0; waiting_ > 0 && l < shape_.layers; ++l)
        add(l, waiting_rows_.rows(l, 1)
                   .reshape({InputOps::stats_rows, shape_.heads, shape_.head_dim})
                   .rows(0, waiting_));
    waiting_ = 0;
}

int64_t QueryStats::revocable(int64_t seen) const {
    return seen - count_ <= skip_ && count_ == 0 ? seen : waiting_;
}

void QueryStats::drop(int64_t n, int64_t seen) {
    if (n == seen) return clear();
    const int64_t dropped = std::min(n, waiting_);
    waiting_ -= dropped;
    count_ -= dropped;
}

void QueryStats::copy_from(QueryStats &other) {
    other.add_waiting();
    make();
    sum_.write(other.sum_.read<float>().data());
    second_.write(other.second_.read<float>().data());
    count_ = other.count_;
    waiting_ = 0;
}

void QueryStats::save(StateWriter &out) {
    add_waiting();
    out.put(count_);
    out.put_all<float>(sum_.read<float>());
    out.put_all<float>(second_.read<float>());
}

void QueryStats::load(StateReader &in, int64_t seen) {
    make();
    waiting_ = 0;
    count_ = in.get_count("queries counted", 0, seen);
    std::vector<float> values;
    for (const Tensor *t : {&sum_, &second_}) {
        in.get_all<float>(values, t->bytes() / sizeof(float), "query statistics");
        for (const float v : values) {
            if (!std::isfinite(v))
                in.fail("query statistics: a value is not finite; the file is damaged");
        }
        t->write(values.data());
    }
}

} // namespace keel
