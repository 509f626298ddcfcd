// The op attention, which can also compute scores. attention_scores uses the same kernels.
#include "opencl/ops/ops.hpp"

#include "opencl/ops/attention_job.hpp"

#include <algorithm>

namespace keel_opencl {
namespace {

// Returns the number of query rows that share the load of a key. More rows save loads, but all
// these rows must fit the registers.
uint32_t rows_together(Form form) { return form == Form::local ? 8 : 4; }

cl_kernel kernel(keel_ctx &ctx, Source source, const char *name, Form form, const KvConstants &c) {
    // If K and V have the same type, the kernel is compiled for this type. Otherwise the kernel
    // gets both types at run time.
    const int type = c.k_type == c.v_type ? static_cast<int>(c.k_type) : -1;
    return ctx.kernels->get(source, name,
                            {{"LANES", lanes_of(form)},
                             {"ROWS", static_cast<int>(rows_together(form))},
                             {"K_TYPE", type},
                             {"V_TYPE", type},
                             {"MAX_DIM", dim_class(std::max(c.k_dim, c.v_dim))}});
}

// The local form keeps 8 queries of up to 1024 elements in local memory. Some devices do not have
// enough local memory for this, although they can run other kernels in the local form.
Form attention_form(keel_ctx &ctx, const KvConstants &c) {
    const bool fits =
        dim_class(std::max(c.k_dim, c.v_dim)) <= 256 || ctx.device.local_memory >= (40 << 10);
    return fits ? ctx.form : Form::plain;
}

// Number and size of the splits: the parts into which the slots of a row are divided. If there are
// few rows, splits give work to all compute units of the device.
struct Splits {
    uint32_t n, slots;
};

// Returns the smallest number of slots in a split.
uint32_t least_slots(Form form) { return form == Form::local ? 64 : 256; }

uint64_t wanted_groups(const keel_ctx &ctx, Form form) {
    return uint64_t{ctx.device.units} * (form == Form::local ? 4 : 2);
}

Splits splits_of(const keel_ctx &ctx, Form form, uint64_t tiles, const KvConstants &c) {
    const uint64_t most = std::max<uint64_t>(1, c.max_length / least_slots(form));
    const uint64_t n =
        std::clamp<uint64_t>(tiles == 0 ? 1 : wanted_groups(ctx, form) / tiles, 1, most);
    const auto slots = static_cast<uint32_t>((c.max_length + n - 1) / n);
    return {static_cast<uint32_t>(n), std::max<uint32_t>(slots, 1)};
}

// Offsets in scratch memory, in floats. First come the statistics of each row, then partial results
// of the splits. A copy of the queries follows if attention overwrites the queries.
struct Room {
    uint64_t partial, queries, end;
};

Room room_of(const keel_ctx &ctx, Form form, const keel_attention_args &a, const KvConstants &c) {
    const uint64_t rows = static_cast<uint64_t>(a.q->shape[0] * a.q->shape[1]);
    Room room{};
    room.partial = 2 * rows;
    // There is more than one split only if there are fewer tiles than groups wanted. Then n * tiles
    // is at most the number of groups wanted.
    const bool may_split = c.max_length >= 2 * least_slots(form);
    room.queries = room.partial +
                   (may_split ? wanted_groups(ctx, form) * rows_together(form) * (c.v_dim + 3) : 0);
    const bool copies = (a.features & KEEL_ATTENTION_SCORES) != 0;
    room.end = room.queries + (copies ? rows * c.k_dim : 0);
    return room;
}

} // namespace

void run_scores(keel_ctx &ctx, const ScoresJob &job) {
    const KvConstants &c = job.kv;
    const View out = view_of(ctx.host, job.scores->out, "scores.out");
    if (c.max_length == 0) return;
    const Form form = ctx.form;
    const size_t local = form == Form::local ? 64 : 8;
    launch(ctx, kernel(ctx, Source::attention_reduce, "scores", form, c),
           {{groups_for(c.max_length, local), c.kv_heads, 1}, {local, 1, 1}}, job.q, job.qv,
           job.view->k, c, job.view->block_table, job.view->lengths, job.view->positions,
           job.q_positions, job.rules, job.stats, job.weights,
           job.weights != nullptr ? view_of(ctx.host, job.weights, "weights") : View{}, job.ranges,
           job.ranges != nullptr ? view_of(ctx.host, job.ranges, "ranges") : View{},
           job.contributing, job.scores->reduce_queries, job.scores->reduce_group,
           job.scores->accumulate, job.scores->out, out);
}

void build_scores(keel_ctx &ctx, const KvConstants &c, bool with_stats) {
    const Form form = ctx.form;
    kernel(ctx, Source::attention_reduce, "scores", form, c);
    if (with_stats) kernel(ctx, Source::attention_reduce, "score_stats", form, c);
}

void run_score_stats(keel_ctx &ctx, const ScoresJob &job) {
    const KvConstants &c = job.kv;
    const Form form = ctx.form;
    launch(ctx, kernel(ctx, Source::attention_reduce, "score_stats", form, c),
           row_grid(form, uint64_t{job.contributing} * job.rules.group * c.kv_heads), job.q, job.qv,
           job.view->k, c, job.view->block_table, job.view->lengths, job.view->positions,
           job.q_positions, job.rules, job.ranges,
           job.ranges != nullptr ? view_of(ctx.host, job.ranges, "ranges") : View{},
           job.contributing, job.stats);
}

namespace {

// In a batch of sequences, each row is one token of its own sequence.
void plan(keel_ctx &ctx, const keel_attention_args &a, PlanChoice &choice) {
    view_of(ctx.host, a.q, "q");
    view_of(ctx.host, a.out, "out");
    if (!choice.named) return;
    const KvConstants c = kv_constants(ctx.host, a.kv, "attention");
    const Form form = attention_form(ctx, c);
    choice.scratch_bytes = 4 * room_of(ctx, form, a, c).end;
    // Building the kernel here makes a failure appear in op_plan and not in a step.
    kernel(ctx, Source::attention, "attention", form, c);
    kernel(ctx, Source::attention, "attention_join", form, c);
    if ((a.features & KEEL_ATTENTION_SCORES) != 0) {
        build_scores(ctx, c, false);
        build_copy_queries(ctx);
    }
    name_kernel(choice, "attention %s/%s %s", type_name(static_cast<Type>(c.k_type)),
                type_name(static_cast<Type>(c.v_type)), form_name(form));
}

void run(keel_ctx &ctx, const keel_attention_args &a, const Seats *seats) {
    KvConstants c = kv_constants(ctx.host, a.kv, "attention", seats);
    View q = view_of(ctx.host, a.q, "q");
    const View out = view_of(ctx.host, a.out, "out");
    const uint32_t heads = q.shape[2], m = seats != nullptr ? 1 : q.shape[1];
    if (q.shape[1] == 0 || heads == 0 || c.kv_heads == 0) return;
    const bool scored = (a.features & KEEL_ATTENTION_SCORES) != 0,
               windowed = (a.features & KEEL_ATTENTION_WINDOW) != 0;
    const Form form = attention_form(ctx, c);
    const Room room = room_of(ctx, form, a, c);
    const cl_mem stats = scratch(ctx, 4 * room.end);
    cl_mem queries = memory_of(ctx, a.q);
    // the score kernels read the queries after `out` was written
    if (scored && a.out->buffer == a.q->buffer) {
        keel_tensor copy = *a.q;
        copy.buffer = nullptr;
        copy.offset = 4 * room.queries;
        copy.stride[1] = 4 * static_cast<int64_t>(q.n);
        copy.stride[0] = copy.stride[1] * heads;
        copy_queries(ctx, *a.q, copy, stats);
        queries = stats;
        q = view_of(ctx.host, &copy, "q");
    }
    Rules rules{};
    rules.flags =
        static_cast<uint32_t>(a.features & (KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_WINDOW |
                                            KEEL_ATTENTION_SOFTCAP | KEEL_ATTENTION_LSE)) |
        (scored ? rule_stats : 0U);
    rules.tokens = m;
    rules.group = heads / c.kv_heads;
    if (seats != nullptr) c.kv_heads *= seats->n; // all sequences together have this many heads
    rules.scale = a.scale;
    rules.softcap = a.softcap;
    rules.window = window_of(a.window);
    if (windowed) rules.place = position_constants(ctx.host, a.q_positions, "attention");
    const keel_tensor *q_positions = windowed ? a.q_positions : nullptr;
    const keel_tensor *lse = (a.features & KEEL_ATTENTION_LSE) != 0 ? a.lse : nullptr;
    const View lsev = lse != nullptr ? view_of(ctx.host, lse, "lse") : View{};
    const uint64_t rows = uint64_t{m} * rules.group,
                   tiles = (rows + rows_together(form) - 1) / rows_together(form);
    const Splits splits = splits_of(ctx, form, tiles * c.kv_heads, c);
    const auto partial = static_cast<uint32_t>(room.partial);
    const size_t local = form == Form::local ? lanes_local : 1;
    launch(ctx, kernel(ctx, Source::attention, "attention", form, c),
           {{static_cast<size_t>(tiles), c.kv_heads, splits.n}, {local, 1, 1}}, queries, q, a.kv->k,
           a.kv->v, c, a.kv->block_table, a.kv->lengths, a.kv->positions,
           seats != nullptr ? seats->list : nullptr, q_positions, rules, splits.n, splits.slots,
           a.out, out, lse, lsev, stats, partial);
    if (splits.n > 1)
        launch(ctx, kernel(ctx, Source::attention, "attention_join", form, c),
               row_grid(form, rows * c.kv_heads), c, rules, splits.n, a.out, out, lse, lsev, stats,
               partial);
    if (!scored) return;
    ScoresJob job{a.kv,
                  c,
                  queries,
                  q,
                  q_positions,
                  rules,
                  stats,
                  nullptr,
                  nullptr,
                  a.scores,
                  contributing(a.scores, m)};
    run_scores(ctx, job);
}

} // namespace

void plan_attention(keel_ctx &ctx, const keel_attention_args &a, PlanChoice &choice) {
    plan(ctx, a, choice);
}

void run_attention(keel_ctx &ctx, const keel_attention_args &a) { run(ctx, a, nullptr); }

void plan_batch_attention(keel_ctx &ctx, const keel_attention_args &a, const Seats &,
                          PlanChoice &choice) {
    choice.named = true; // this builds the kernels and computes the size of the scratch memory
    plan(ctx, a, choice);
}

void run_batch_attention(keel_ctx &ctx, const keel_attention_args &a, const Seats &seats) {
    run(ctx, a, &seats);
}

} // namespace keel_opencl
