#include "kv/inputs/range_scores.hpp"

#include "base/error.hpp"

namespace keel {
namespace {

// Returns one row of an i32 tensor of a view (block table, lengths or positions).
keel_tensor row_of(const keel_tensor &all, uint32_t row) {
    keel_tensor one = all;
    // A tensor of rank 1 has no stride for its elements.
    const auto stride = all.rank == 1 ? sizeof(int32_t) : static_cast<uint64_t>(all.stride[0]);
    one.offset += row * stride;
    one.shape[0] = 1;
    return one;
}

} // namespace

void RangeScores::run(const std::function<Ranges(uint32_t head)> &of) {
    const KvShape &s = setup_.shape();
    const InputOps &ops = setup_.inputs();
    const Ranges first = of(0);
    bool alike = true;
    for (uint32_t h = 1; alike && h < s.kv_heads; ++h)
        alike = cache_.length(layer_, h) == cache_.length(layer_, 0) && of(h) == first;
    const keel_kv_view *view = cache_.view(layer_);
    if (alike) return queue(ops.piece_scores.get(), q.c(), view, out, first);
    const int64_t heads = s.heads / s.kv_heads;
    for (uint32_t h = 0; h < s.kv_heads; ++h) {
        const keel_tensor table = row_of(*view->block_table, h), length = row_of(*view->lengths, h),
                          positions = row_of(*view->positions, h);
        keel_kv_view one = *view;
        one.kv_heads = 1;
        one.block_table = &table;
        one.lengths = &length;
        one.positions = &positions;
        keel_tensor mine = *q.c();
        mine.offset += h * static_cast<uint64_t>(heads * mine.stride[1]);
        mine.shape[1] = heads;
        queue(ops.head_scores.get(), &mine, &one, out.rows(h, 1), of(h));
    }
}

void RangeScores::queue(PlannedOp *op, const keel_tensor *queries_of, const keel_kv_view *view,
                        const Tensor &sums, const Ranges &ranges) {
    std::vector<int32_t> flat;
    for (const auto &[begin, end] : ranges) {
        if (begin >= end) continue;
        flat.push_back(static_cast<int32_t>(begin));
        flat.push_back(static_cast<int32_t>(end));
    }
    if (flat.empty()) return;
    const Tensor on_device = room_.rows(0, std::ssize(flat) / 2);
    on_device.write(flat.data());
    keel_scores reduction = {KEEL_HEADER(keel_scores)};
    reduction.out = sums.c();
    reduction.reduce_queries = queries;
    reduction.reduce_group = group;
    reduction.accumulate = 1;
    keel_attention_scores_args args = {KEEL_HEADER(keel_attention_scores_args)};
    args.features = KEEL_SCORES_RANGES | features;
    args.q = queries_of;
    args.kv = view;
    args.ranges = on_device.c();
    args.scores = &reduction;
    args.scale = setup_.geometry().attention_scale;
    setup_.logit_rules().add_to(args, q_positions);
    setup_.executor().run(*op, args);
}

} // namespace keel
