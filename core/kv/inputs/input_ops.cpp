#include "kv/inputs/input_ops.hpp"

#include "device/device.hpp"

#include <algorithm>

namespace keel {
namespace {

// Plans the ops for one model's shapes.
struct Planner {
    Executor &executor;
    const KvShape &s;
    const keel_policy_needs &needs;
    const LogitRules &rules;
    KvTemplate kv;
    int64_t slots, steps;
    keel_dtype activation;

    Planner(Executor &ex, const KvShape &shape, const keel_policy_needs &n, const LogitRules &r)
        : executor(ex), s(shape), needs(n), rules(r), kv(shape),
          slots(shape.blocks_per_head() * shape.block_slots), steps(step_tokens(ex, shape)),
          activation(ex.device().info().activation_dtype) {}

    bool has(uint64_t bit) const { return (needs.needs & bit) != 0; }

    OpHandle keys(keel_op op, uint64_t features, const Tensor &out, Role role,
                  const keel_rope_tables *tables = nullptr, const Tensor &projection = {}) const {
        keel_keys_args args = {KEEL_HEADER(keel_keys_args)};
        args.features = features;
        args.kv = kv.view();
        args.tables = tables;
        args.projection = projection.c();
        args.out = out.c();
        args.end = s.max_slots;
        return executor.plan(op, args, {.role = role});
    }

    // The queries of a step, inside the output of the fused projection.
    Tensor step_queries(int64_t m, int64_t heads) const {
        const int64_t dim = s.head_dim, width = (int64_t{s.heads} + 2 * int64_t{s.kv_heads}) * dim;
        return Tensor::shape(activation, {m, width})
            .columns(0, heads * dim)
            .reshape({m, heads, dim});
    }

    OpHandle scores(const Tensor &q, const keel_kv_view *view, uint64_t features,
                    keel_reduce queries, keel_reduce group, bool accumulate, Role role) const {
        const int64_t rows = group == KEEL_REDUCE_NONE ? q.dim(1) : view->kv_heads;
        const Tensor out = Tensor::shape(KEEL_DTYPE_F32, {rows, slots});
        const Tensor ranges = Tensor::shape(KEEL_DTYPE_I32, {InputOps::most_ranges, 2});
        keel_scores reduction = {KEEL_HEADER(keel_scores)};
        reduction.out = out.c();
        reduction.reduce_queries = queries;
        reduction.reduce_group = group;
        reduction.accumulate = accumulate ? 1 : 0;
        keel_attention_scores_args args = {KEEL_HEADER(keel_attention_scores_args)};
        args.features = features;
        args.q = q.c();
        args.kv = view;
        if ((features & KEEL_SCORES_RANGES) != 0) args.ranges = ranges.c();
        args.scores = &reduction;
        args.scale = 1;
        const Tensor positions = Tensor::shape(KEEL_DTYPE_I32, {q.dim(0)});
        // The feature LOGITS gives scores without softmax. Such scores are not the model's
        // attention, so the model's logit rules do not apply.
        if ((features & KEEL_SCORES_LOGITS) == 0) rules.add_to(args, positions.c());
        return executor.plan(KEEL_OP_ATTENTION_SCORES, args, {.role = role});
    }

    OpHandle copy(const Tensor &from, const Tensor &to, Role role) const {
        keel_move_args args = {KEEL_HEADER(keel_move_args)};
        args.x = from.c();
        args.out = to.c();
        return executor.plan(KEEL_OP_COPY, args, {.role = role});
    }

    void from_cache(InputOps &ops, const keel_rope_tables *tables) const {
        const Tensor per_slot = Tensor::shape(KEEL_DTYPE_F32, {s.kv_heads, slots});
        const Tensor per_head = Tensor::shape(KEEL_DTYPE_F32, {s.kv_heads, s.head_dim});
        if (has(KEEL_NEED_KEY_NORMS))
            ops.key_norms =
                keys(KEEL_OP_KEY_PROJECT, KEEL_KEYS_NORMS, per_slot, Role::kv_key_norms);
        if (has(KEEL_NEED_VALUE_NORMS))
            ops.value_norms = keys(KEEL_OP_VALUE_NORMS, 0, per_slot, Role::kv_value_norms);
        if (has(KEEL_NEED_KEY_SUM | KEEL_NEED_KEY_ANCHOR))
            ops.key_sum = keys(KEEL_OP_KEY_SUM, KEEL_KEYS_NORMALIZED, per_head, Role::kv_key_sum);
        if (has(KEEL_NEED_KEY_ANCHOR)) {
            const Tensor anchors = Tensor::shape(KEEL_DTYPE_F32, {1, s.kv_heads, s.head_dim});
            ops.key_anchor = scores(anchors, kv.view(), KEEL_SCORES_LOGITS, KEEL_REDUCE_SUM,
                                    KEEL_REDUCE_SUM, false, Role::kv_key_anchors);
        }
        const uint64_t unrotated = has(KEEL_NEED_UNROTATED) ? KEEL_KEYS_UNROTATED : 0;
        if (has(KEEL_NEED_KEY_PROJECT)) {
            const int64_t r = needs.projection_cols;
            const Tensor out = Tensor::shape(KEEL_DTYPE_F32, {s.kv_heads, slots, r});
            const Tensor matrix = Tensor::shape(KEEL_DTYPE_F32, {s.head_dim, r});
            ops.key_project = keys(KEEL_OP_KEY_PROJECT, unrotated, out, Role::kv_projected_keys,
                                   unrotated != 0 ? tables : nullptr, matrix);
        }
        if (has(KEEL_NEED_KEYS)) {
            const Tensor out = Tensor::shape(KEEL_DTYPE_F32, {s.kv_heads, slots, s.head_dim});
            ops.keys = keys(KEEL_OP_KEY_PROJECT, unrotated, out, Role::kv_keys,
                            unrotated != 0 ? tables : nullptr);
        }
        if (has(KEEL_NEED_WINDOW_SCORES)) {
            const Tensor q = step_queries(needs.window, s.heads);
            ops.window_scores = scores(q, kv.view(), KEEL_SCORES_CAUSAL, needs.reduce_queries,
                                       needs.reduce_group, false, Role::kv_window_scores);
        }
    }

    // Plans the ops of a ring with the queries of the last tokens, for all layers. `in_decode`:
    // true if decode steps also write their queries to the ring.
    void ring(InputOps &ops, int64_t window, bool in_decode) const {
        const int64_t row = int64_t{s.heads} * s.head_dim, kept = std::min(window, steps);
        const Tensor all = Tensor::shape(activation, {s.layers, window * row});
        const Tensor ordered = Tensor::shape(activation, {1, window * row});
        ops.order_queries = copy(all.rows(0, 1), ordered, Role::kv_order_queries);
        ops.keep_queries =
            copy(step_queries(kept, s.heads),
                 Tensor::shape(activation, {kept, s.heads, s.head_dim}), Role::kv_keep_queries);
        if (in_decode && executor.can_record())
            ops.place_queries = copy(Tensor::shape(activation, {s.layers, row}),
                                     all.columns(0, row), Role::kv_place_queries);
    }

    void in_steps(InputOps &ops, const Collected &g) const {
        const int64_t dim = s.head_dim;
        if (g.stats) {
            const Tensor q = Tensor::shape(KEEL_DTYPE_F32,
                                           {std::max(steps, InputOps::stats_rows), s.heads, dim});
            const Tensor sum = Tensor::shape(KEEL_DTYPE_F32, {s.heads, dim});
            const Tensor second = Tensor::shape(KEEL_DTYPE_F32, {s.heads, dim, dim});
            keel_query_stats_args args = {KEEL_HEADER(keel_query_stats_args)};
            args.q = q.c();
            args.sum = sum.c();
            args.second = second.c();
            ops.query_stats =
                executor.plan(KEEL_OP_QUERY_STATS, args, {.role = Role::kv_query_statistics});
        }
        if (g.running || g.chunks) {
            const Tensor all =
                Tensor::shape(KEEL_DTYPE_F32, {int64_t{s.layers} * s.kv_heads, slots});
            const Tensor some = all.columns(0, std::min(slots, InputOps::clear_slots));
            keel_move_args args = {KEEL_HEADER(keel_move_args)};
            args.out = some.c();
            ops.clear_sums = executor.plan(KEEL_OP_ZERO, args, {.role = Role::kv_clear_sums});
            const Tensor most = all.columns(0, s.max_slots);
            ops.grow_sums = copy(most, most, Role::kv_grow_sums);
        }
        if (g.running || g.chunks || has(KEEL_NEED_REPLAY)) {
            const Tensor all =
                Tensor::shape(KEEL_DTYPE_F32, {int64_t{s.layers} * s.kv_heads, slots});
            ops.read_sums =
                copy(all.columns(0, s.max_slots),
                     Tensor::shape(KEEL_DTYPE_F32, {all.dim(0), s.max_slots}), Role::kv_read_sums);
        }
        if (g.chunks || has(KEEL_NEED_REPLAY)) plan_pieces(ops, g);
    }

    void plan_pieces(InputOps &ops, const Collected &g) const {
        const keel_reduce queries = g.chunks ? KEEL_REDUCE_SUM : KEEL_REDUCE_MAX;
        const keel_reduce group = g.chunks ? g.chunks->group : keel_reduce{KEEL_REDUCE_MAX};
        const uint64_t features = KEEL_SCORES_RANGES | (g.chunks ? 0u : KEEL_SCORES_CAUSAL);
        const int64_t m = g.chunks ? std::min<int64_t>(steps, g.chunks->tokens) : steps;
        // The planned view has only one head of the cache.
        const uint32_t group_heads = s.heads / s.kv_heads;
        const Tensor table = Tensor::shape(KEEL_DTYPE_I32, {1, s.blocks_per_head()});
        const Tensor length = Tensor::shape(KEEL_DTYPE_I32, {1}),
                     positions = Tensor::shape(KEEL_DTYPE_I32, {1, slots});
        keel_kv_view head = *kv.view();
        head.kv_heads = 1;
        head.block_table = table.c();
        head.lengths = length.c();
        head.positions = positions.c();
        const Role role = g.chunks ? Role::kv_piece_scores : Role::kv_replay_scores;
        ops.piece_scores =
            scores(step_queries(m, s.heads), kv.view(), features, queries, group, true, role);
        ops.head_scores =
            scores(step_queries(m, group_heads), &head, features, queries, group, true, role);
    }
};

} // namespace

int64_t step_tokens(Executor &executor, const KvShape &shape) {
    return std::min<int64_t>(executor.device().info().prefill_chunk, shape.max_slots);
}

InputOps InputOps::plan(Executor &executor, const KvShape &shape, const keel_policy_needs &needs,
                        const Collected &collected, const LogitRules &rules, bool has_ring,
                        const keel_rope_tables *tables) {
    InputOps ops;
    const Planner planner(executor, shape, needs, rules);
    planner.from_cache(ops, tables);
    if (collected.window > 0) planner.ring(ops, collected.window, has_ring);
    planner.in_steps(ops, collected);
    return ops;
}

std::vector<const PlannedOp *> InputOps::list() const {
    std::vector<const PlannedOp *> out;
    for (const OpHandle *op :
         {&key_norms, &value_norms, &key_sum, &key_anchor, &key_project, &keys, &window_scores,
          &read_sums, &order_queries, &keep_queries, &place_queries, &query_stats, &piece_scores,
          &head_scores, &clear_sums, &grow_sums}) {
        if (*op) out.push_back(op->get());
    }
    return out;
}

} // namespace keel
