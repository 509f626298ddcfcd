// The backward pass of dense attention: gradients of q, k, v and of the sinks. The five products
// are f32, or bf16 with f32 sums if all tensors are bf16 and the machine multiplies bf16.
#include "cpu/attention/dense.hpp"

#include <math.h>
#include <string.h>

namespace keel_cpu {
namespace {

// Queries of a step, whose pairs with a tile of keys stay in the L1 cache. A multiple of six.
constexpr int64_t kBackwardStep = 48;
// The same for bf16 products. A panel of values (attention_types.hpp) has this many rows.
constexpr int64_t kBackwardStep16 = kTileSlots;
// Rows are packed as x in blocks of x_rows rows, so the last block may have more rows than a step.
constexpr int64_t kPackedRows = 96;
static_assert(kPackedRows >= kBackwardStep16 + bf16_rows && kPackedRows >= kDenseKeys + bf16_rows);
// Number of tasks that keeps all threads busy. It is fixed, because tasks decide the order of sums.
constexpr int64_t kLeastTasks = 32;
// Each group of key tiles has its own part of d_q, so more groups need more memory.
constexpr int64_t kMostGroups = 8;

struct DenseBackward {
    DenseBackward(const keel_ctx *ctx, const DenseAttention &attention,
                  const keel_dense_gradients &g, float *deltas, float *parts, int64_t n)
        : a(attention), bf16(bf16_products(ctx, a, {g.out, g.d_out, g.d_q, g.d_k, g.d_v})),
          out(g.out), d_out(g.d_out), d_q(g.d_q), d_k(g.d_k), d_v(g.d_v),
          lse(data_as<const float>(g.lse)), lse_batch(g.lse->stride[0] / 4),
          lse_head(g.lse->stride[1] / 4), delta(deltas), d_q_parts(parts), groups(n) {}

    const DenseAttention &a;
    const Bf16AttentionKernels *bf16; // NULL: the products are f32
    DenseTensor out, d_out, d_q, d_k, d_v;
    const float *lse;
    int64_t lse_batch, lse_head;
    float *delta;     // [batch, heads, rows]
    float *d_q_parts; // [groups, batch, heads, rows, padded head_dim]
    int64_t groups;   // key tile number i belongs to group i % groups

    float lse_of(int64_t b, int64_t h, int64_t i) const {
        return lse[b * lse_batch + h * lse_head + i];
    }
    float &delta_of(int64_t b, int64_t h, int64_t i) const {
        return delta[(b * a.n.heads + h) * a.n.rows + i];
    }
    // Row i of a group's part of d_q.
    float *d_q_part(int64_t group, int64_t b, int64_t h, int64_t i) const {
        const int64_t line = ((group * a.n.batch + b) * a.n.heads + h) * a.n.rows + i;
        return d_q_parts + line * padded(a.n.head_dim);
    }
    // What is subtracted from the logits of a query. With infinity, all its weights are 0.
    float subtrahend(int64_t b, int64_t h, int64_t i) const {
        const float x = lse_of(b, h, i);
        return x == -__builtin_inff() ? __builtin_inff() : x;
    }
};

// Scratch memory of one worker; d and e are the padded sizes of keys and values.
struct BackwardScratch {
    BackwardScratch(float *base, int64_t d, int64_t e) : room(base) {
        constexpr int64_t rows = kBackwardStep16, pairs = rows * kDenseKeys;
        q = room.take(rows * d), d_out = room.take(rows * e);
        k = room.take(kDenseKeys * d), v = room.take(kDenseKeys * e);
        k_turned = room.take(kDenseKeys * d), v_turned = room.take(kDenseKeys * e);
        d_k = room.take(kDenseKeys * d), d_v = room.take(kDenseKeys * e);
        s = room.take(pairs), dp = room.take(pairs), capped = room.take(pairs);
        bias = room.take(pairs), keep = room.take(pairs), turned = room.take(pairs);
        const int64_t deep = bf16_padded(d), deep_e = bf16_padded(e);
        q_x = room.take16(kPackedRows * deep), d_out_x = room.take16(kPackedRows * deep_e);
        q_panels = room.take16(rows * d), d_out_panels = room.take16(rows * e);
        k_panels = room.take16(kDenseKeys * d);
        k_turned16 = room.take16(kDenseKeys * deep), v_turned16 = room.take16(kDenseKeys * deep_e);
        rows16 = room.take16(kDenseKeys * (deep > deep_e ? deep : deep_e));
        pairs_x = room.take16(kPackedRows * kDenseKeys);
    }

    DenseRoom room;
    float *q, *d_out;           // [rows][d], [rows][e] of a step
    float *k, *v;               // [kDenseKeys][d], [kDenseKeys][e]
    float *k_turned, *v_turned; // [d][kDenseKeys], [e][kDenseKeys]
    float *d_k, *d_v;           // sums: [kDenseKeys][d], [kDenseKeys][e]
    // Tiles of pairs, [rows][kDenseKeys]. turned: [kDenseKeys][kBackwardStep16].
    float *s, *dp, *capped, *bias, *keep, *turned;
    // Operands of bf16 products (attention_types.hpp). *_x: rows as x. *_panels: rows as values.
    // *_turned16: keys and values as keys. pairs_x: a tile of pairs as x.
    uint16_t *q_x, *d_out_x, *q_panels, *d_out_panels, *k_panels, *k_turned16, *v_turned16;
    uint16_t *rows16, *pairs_x;
};

// Computes delta of one row: the sum of d_out * out, without the elements in which out is 0.
void compute_delta(const DenseBackward &job, const BackwardScratch &w, int64_t b, int64_t h,
                   int64_t i) {
    const DenseAttention &a = job.a;
    float *out = w.d_v, *d_out = w.d_k; // these rows are free before the tasks begin
    a.kernels->load[job.out.type](job.out.row(b, i, h), a.n.v_head_dim, out);
    a.kernels->load[job.d_out.type](job.d_out.row(b, i, h), a.n.v_head_dim, d_out);
    double sum = 0;
    for (int64_t e = 0; e < a.n.v_head_dim; ++e)
        if (out[e] != 0) sum += static_cast<double>(out[e]) * static_cast<double>(d_out[e]);
    job.delta_of(b, h, i) = static_cast<float>(sum);
}

float sink_gradient(const DenseBackward &job, int64_t h) {
    const float sink = job.a.sink[h];
    double sum = 0;
    if (sink == -__builtin_inff()) return 0;
    for (int64_t b = 0; b < job.a.n.batch; ++b)
        for (int64_t i = 0; i < job.a.n.rows; ++i)
            sum -= exp(static_cast<double>(sink) - static_cast<double>(job.lse_of(b, h, i))) *
                   static_cast<double>(job.delta_of(b, h, i));
    return static_cast<float>(sum);
}

// Turns the logits in w.s into weights.
void make_weights(const DenseBackward &job, const BackwardScratch &w, const DenseTile &t,
                  bool biased) {
    const DenseAttention &a = job.a;
    const AttentionKernels &kernels = *a.kernels;
    for (int64_t r = 0; r < t.rows; ++r) {
        float *s = w.s + r * kDenseKeys;
        if (a.cap != 0) {
            kernels.softcap(s, t.keys, a.cap);
            memcpy(w.capped + r * kDenseKeys, s, static_cast<size_t>(t.keys) * 4);
        }
        if (biased) kernels.add_bias(s, w.bias + r * kDenseKeys, t.keys);
        kernels.exp_minus(s, job.subtrahend(t.b, t.h, t.row + r), t.keys);
        if (biased) kernels.hide(s, w.bias + r * kDenseKeys, t.keys);
    }
}

// Turns the products d_out . v in w.dp into gradients of the logits. The weights are in w.s.
void make_gradients(const DenseBackward &job, const BackwardScratch &w, const DenseTile &t,
                    bool biased) {
    const DenseAttention &a = job.a;
    const AttentionKernels &kernels = *a.kernels;
    for (int64_t r = 0; r < t.rows; ++r) {
        const int64_t at = r * kDenseKeys;
        if (a.drops) kernels.drop(w.dp + at, w.keep + at, t.keys);
        kernels.logit_gradient(w.dp + at, w.s + at, job.delta_of(t.b, t.h, t.row + r), t.keys);
        if (a.cap != 0) kernels.softcap_gradient(w.dp + at, w.capped + at, a.cap, t.keys);
        if (biased) kernels.hide(w.dp + at, w.bias + at, t.keys);
    }
}

// Does the same as fill_bias(), and also hides the rows whose logits are all -infinity, because
// such a row adds nothing to a gradient. The weights of such a row are 0, but 0 times an infinity
// of q or k would be NaN.
bool fill_seen(const DenseBackward &job, const DenseTile &t, float *bias) {
    bool biased = fill_bias(job.a, t, bias);
    for (int64_t r = 0; r < t.rows; ++r) {
        if (job.lse_of(t.b, t.h, t.row + r) != -__builtin_inff()) continue;
        if (!biased) memset(bias, 0, static_cast<size_t>(t.rows * kDenseKeys) * 4);
        biased = true;
        for (int64_t j = 0; j < t.keys; ++j) bias[r * kDenseKeys + j] = kHidden;
    }
    return biased;
}

// A tile of keys and values.
struct KeyTile {
    int64_t b, kv_head, key, keys, group;
    bool loaded;   // k, w.k_turned and w.v_turned are there
    DenseRowsOf k; // in f32
};

// Loads a tile of keys and values for f32 products.
void load_key_tile(const DenseAttention &a, const BackwardScratch &w, KeyTile &t) {
    if (t.loaded) return;
    t.loaded = true;
    t.k = dense_rows(a, a.k, t.b, t.kv_head, t.key, t.keys, true, w.k);
    a.kernels->transpose(t.k.data, t.k.stride, padded(t.keys), a.n.head_dim, w.k_turned,
                         kDenseKeys);
    const DenseRowsOf v = dense_rows(a, a.v, t.b, t.kv_head, t.key, t.keys, true, w.v);
    a.kernels->transpose(v.data, v.stride, padded(t.keys), a.n.v_head_dim, w.v_turned, kDenseKeys);
}

// Computes weights and gradients of a tile from the two products in w.s and w.dp. Returns true if
// w.bias is filled. Afterwards w.s has the weights without dropout.
bool finish_pairs(const DenseBackward &job, const BackwardScratch &w, const DenseTile &t) {
    const bool biased = fill_seen(job, t, w.bias);
    if (job.a.drops) fill_keep(job.a, t, w.keep);
    make_weights(job, w, t, biased);
    make_gradients(job, w, t, biased);
    return biased;
}

void drop_weights(const DenseAttention &a, const BackwardScratch &w, const DenseTile &t) {
    for (int64_t r = 0; a.drops && r < t.rows; ++r)
        a.kernels->drop(w.s + r * kDenseKeys, w.keep + r * kDenseKeys, t.keys);
}

// With bf16 products the queries are not scaled, because rounding scaled queries would change the
// logits. Then the logits and d_k are scaled instead.
void scale_logits(const DenseBackward &job, const BackwardScratch &w, const DenseTile &t) {
    for (int64_t r = 0; job.bf16 != nullptr && r < t.rows; ++r)
        job.a.kernels->scale(w.s + r * kDenseKeys, t.keys, job.a.args.scale);
}

// Adds what the queries of a step give to d_k, d_v and d_q, with f32 products.
void add_queries(const DenseBackward &job, const BackwardScratch &w, KeyTile &keys,
                 const DenseTile &t) {
    const DenseAttention &a = job.a;
    const AttentionKernels &kernels = *a.kernels;
    const int64_t d = padded(a.n.head_dim), e = padded(a.n.v_head_dim), cols = padded(t.keys);
    load_key_tile(a, w, keys);
    load_scaled(a, a.q, t.b, t.h, t.row, t.rows, job.bf16 == nullptr ? a.args.scale : 1, w.q);
    const DenseRowsOf d_out = dense_rows(a, job.d_out, t.b, t.h, t.row, t.rows, false, w.d_out);
    kernels.gemm({w.q, d, 1}, t.rows, w.k_turned, kDenseKeys, a.n.head_dim, cols, w.s, kDenseKeys,
                 false);
    scale_logits(job, w, t);
    kernels.gemm({d_out.data, d_out.stride, 1}, t.rows, w.v_turned, kDenseKeys, a.n.v_head_dim,
                 cols, w.dp, kDenseKeys, false);
    const bool biased = finish_pairs(job, w, t);
    const float *bias = biased ? w.bias : nullptr, *keep = a.drops ? w.keep : nullptr;
    add_product(a, {w.dp, kDenseKeys, 1}, {bias, nullptr}, t.rows, t.keys, keys.k, d,
                job.d_q_part(keys.group, t.b, t.h, t.row));
    add_product(a, {w.dp, 1, kDenseKeys}, {bias, nullptr}, t.keys, t.rows, {w.q, d}, d, w.d_k);
    drop_weights(a, w, t);
    add_product(a, {w.s, 1, kDenseKeys}, {bias, keep}, t.keys, t.rows, d_out, e, w.d_v);
}

// ---- the same with bf16 products ----

// c[rows, columns] = x * w, or adds the product. `x` has rows of `depth` elements.
void multiply16(const DenseBackward &job, const uint16_t *x, int64_t rows, int64_t depth,
                const uint16_t *w, int64_t panel_stride, int64_t columns, float *c,
                int64_t c_stride, bool accumulate) {
    const int64_t step = job.bf16->rows_at_once;
    for (int64_t r = 0; r < rows; r += step) {
        const int64_t n = rows - r < step ? rows - r : step;
        job.bf16->begin(n);
        job.bf16->multiply({x + r * depth, n, depth, depth, w, panel_stride, columns,
                            c + r * c_stride, c_stride, accumulate});
        job.bf16->end();
    }
}

// Packs a tile of keys or values as the right operand of products with queries.
void turn_rows16(const DenseBackward &job, const BackwardScratch &w, const DenseTensor &t,
                 const KeyTile &tile, uint16_t *panels) {
    const int64_t depth = bf16_padded(t.dim), whole = round_up(tile.keys, 16);
    job.bf16->load_keys[kRowBf16](t.row(tile.b, tile.key, tile.kv_head), t.token, tile.keys, t.dim,
                                  w.rows16, {nullptr, 0});
    memset(w.rows16 + tile.keys * depth, 0, static_cast<size_t>((whole - tile.keys) * depth) * 2);
    job.bf16->turn_keys(w.rows16, whole, t.dim, panels);
}

// Packs rows from..from+n-1 of a head as values.
void value_panels(const DenseBackward &job, const DenseTensor &t, int64_t b, int64_t h,
                  int64_t from, int64_t n, uint16_t *panels) {
    job.bf16->load_values[kRowBf16](t.row(b, from, h), t.token, 0, n, t.dim, true, panels,
                                    {nullptr, 0});
}

bool finite_panels(const DenseBackward &job, const uint16_t *panels, int64_t rows, int64_t dim) {
    for (int64_t c = 0; c < padded(dim); c += 16)
        if (!job.bf16->finite(panels + c * kTileSlots, bf16_padded(rows) * 16)) return false;
    return true;
}

// Adds the product of the transposed tile `pairs` and packed rows to sums[keys][dim].
void add_turned16(const DenseBackward &job, const BackwardScratch &w, const DenseTile &t,
                  const float *pairs, const uint16_t *panels, int64_t dim, float *sums) {
    job.a.kernels->transpose(pairs, kDenseKeys, padded(t.rows), t.keys, w.turned, kBackwardStep16);
    job.bf16->pack_rows(w.turned, kBackwardStep16, t.keys, t.rows, w.pairs_x);
    multiply16(job, w.pairs_x, t.keys, bf16_padded(t.rows), panels, 16 * kTileSlots, dim, sums, dim,
               true);
}

void add_queries16(const DenseBackward &job, const BackwardScratch &w, KeyTile &keys,
                   const DenseTile &t) {
    const DenseAttention &a = job.a;
    const int64_t d = padded(a.n.head_dim), e = padded(a.n.v_head_dim),
                  deep = bf16_padded(a.n.head_dim), deep_e = bf16_padded(a.n.v_head_dim);
    value_panels(job, a.q, t.b, t.h, t.row, t.rows, w.q_panels);
    value_panels(job, job.d_out, t.b, t.h, t.row, t.rows, w.d_out_panels);
    // The bf16 products skip no pairs, so all their operands must be finite.
    if (!finite_panels(job, w.q_panels, t.rows, a.n.head_dim) ||
        !finite_panels(job, w.d_out_panels, t.rows, a.n.v_head_dim) ||
        !finite_panels(job, w.k_panels, t.keys, a.n.head_dim))
        return add_queries(job, w, keys, t);
    load_scaled(a, a.q, t.b, t.h, t.row, t.rows, 1, w.q);
    load_scaled(a, job.d_out, t.b, t.h, t.row, t.rows, 1, w.d_out);
    job.bf16->pack_rows(w.q, d, t.rows, a.n.head_dim, w.q_x);
    job.bf16->pack_rows(w.d_out, e, t.rows, a.n.v_head_dim, w.d_out_x);
    multiply16(job, w.q_x, t.rows, deep, w.k_turned16, 16 * deep, padded(t.keys), w.s, kDenseKeys,
               false);
    scale_logits(job, w, t);
    multiply16(job, w.d_out_x, t.rows, deep_e, w.v_turned16, 16 * deep_e, padded(t.keys), w.dp,
               kDenseKeys, false);
    finish_pairs(job, w, t);
    job.bf16->pack_rows(w.dp, kDenseKeys, t.rows, t.keys, w.pairs_x);
    multiply16(job, w.pairs_x, t.rows, bf16_padded(t.keys), w.k_panels, 16 * kTileSlots, d,
               job.d_q_part(keys.group, t.b, t.h, t.row), d, true);
    add_turned16(job, w, t, w.dp, w.q_panels, d, w.d_k);
    drop_weights(a, w, t);
    add_turned16(job, w, t, w.s, w.d_out_panels, e, w.d_v);
}

// ---- tasks ----

void run_key_tile(const DenseBackward &job, const BackwardScratch &w, KeyTile t) {
    const DenseAttention &a = job.a;
    const bool half = job.bf16 != nullptr;
    const int64_t d = padded(a.n.head_dim), e = padded(a.n.v_head_dim),
                  of_head = a.n.heads / a.n.kv_heads, step = half ? kBackwardStep16 : kBackwardStep;
    if (half) {
        turn_rows16(job, w, a.k, t, w.k_turned16);
        turn_rows16(job, w, a.v, t, w.v_turned16);
        value_panels(job, a.k, t.b, t.kv_head, t.key, t.keys, w.k_panels);
    }
    memset(w.d_k, 0, static_cast<size_t>(t.keys * d) * 4);
    memset(w.d_v, 0, static_cast<size_t>(t.keys * e) * 4);
    for (int64_t h = t.kv_head * of_head; h < (t.kv_head + 1) * of_head; ++h) {
        for (int64_t row = 0; row < a.n.rows; row += step) {
            const int64_t left = a.n.rows - row, rows = left < step ? left : step;
            const Range seen = a.keys_of(row, row + rows);
            if (seen.end <= t.key || seen.begin >= t.key + t.keys) continue;
            const DenseTile tile = {t.b, h, row, rows, t.key, t.keys};
            half ? add_queries16(job, w, t, tile) : add_queries(job, w, t, tile);
        }
    }
    for (int64_t j = 0; j < t.keys; ++j) {
        if (half) a.kernels->scale(w.d_k + j * d, a.n.head_dim, a.args.scale);
        a.kernels->store[job.d_k.type](w.d_k + j * d, a.n.head_dim,
                                       job.d_k.row(t.b, t.key + j, t.kv_head));
        a.kernels->store[job.d_v.type](w.d_v + j * e, a.n.v_head_dim,
                                       job.d_v.row(t.b, t.key + j, t.kv_head));
    }
}

// A task: the key tiles of a group, for one KV head.
void run_backward_task(const DenseBackward &job, const BackwardScratch &w, int64_t task) {
    const DenseAttention &a = job.a;
    const int64_t kv_heads = a.n.batch * a.n.kv_heads, head = task % kv_heads,
                  group = task / kv_heads, b = head / a.n.kv_heads, kv_head = head % a.n.kv_heads,
                  of_head = a.n.heads / a.n.kv_heads;
    memset(job.d_q_part(group, b, kv_head * of_head, 0), 0,
           static_cast<size_t>(of_head * a.n.rows * padded(a.n.head_dim)) * 4);
    for (int64_t tile = group; tile < a.tiles_of_keys(); tile += job.groups) {
        const int64_t key = tile * kDenseKeys, left = a.n.keys - key;
        run_key_tile(job, w,
                     {b, kv_head, key, left < kDenseKeys ? left : kDenseKeys, group, false, {}});
    }
}

// Adds up the parts of row i of d_q, and stores the row.
void write_d_q(const DenseBackward &job, int64_t b, int64_t h, int64_t i) {
    const DenseAttention &a = job.a;
    float *row = job.d_q_part(0, b, h, i);
    for (int64_t group = 1; group < job.groups; ++group)
        a.kernels->add(row, job.d_q_part(group, b, h, i), a.n.head_dim);
    a.kernels->scale(row, a.n.head_dim, a.args.scale);
    a.kernels->store[job.d_q.type](row, a.n.head_dim, job.d_q.row(b, i, h));
}

int64_t groups_of(const DenseAttention &a) {
    const int64_t heads = a.n.batch * a.n.kv_heads, tiles = a.tiles_of_keys();
    const int64_t wanted = heads == 0 ? 1 : (kLeastTasks + heads - 1) / heads;
    const int64_t most = tiles < kMostGroups ? tiles : kMostGroups;
    return wanted < most ? wanted : most < 1 ? 1 : most;
}

} // namespace

keel_status run_dense_backward(keel_ctx *ctx, const DenseAttention &a,
                               const keel_dense_gradients &g) noexcept {
    const int64_t d = padded(a.n.head_dim), e = padded(a.n.v_head_dim),
                  each = BackwardScratch(nullptr, d, e).room.used(),
                  lines = a.n.batch * a.n.heads * a.n.rows, groups = groups_of(a),
                  tasks = groups * a.n.batch * a.n.kv_heads;
    const int64_t floats = round_up(lines, kPad) + groups * lines * d + each * ctx->threads;
    uint8_t *base = scratch(ctx, static_cast<uint64_t>(floats) * 4);
    if (base == nullptr) return KEEL_E_OUT_OF_MEMORY;
    auto *delta = reinterpret_cast<float *>(base), *parts = delta + round_up(lines, kPad),
         *rooms = parts + groups * lines * d;
    const DenseBackward job(ctx, a, g, delta, parts, groups);
    auto *d_sink = g.d_sink != nullptr ? data_as<float>(g.d_sink) : nullptr;
    std::atomic<int64_t> next{0};
    return parallel(ctx, dense_workers(ctx, a, 5), [&](const Team &team) {
        const BackwardScratch w(rooms + team.worker * each, d, e);
        const Range mine = share(lines, 1, team);
        const auto for_lines = [&](const auto &action) {
            for (int64_t line = mine.begin; line < mine.end; ++line) {
                const int64_t head = line / a.n.rows;
                action(head / a.n.heads, head % a.n.heads, line % a.n.rows);
            }
        };
        for_lines([&](int64_t b, int64_t h, int64_t i) { compute_delta(job, w, b, h, i); });
        team.barrier();
        for (int64_t h = team.worker; d_sink != nullptr && h < a.n.heads; h += team.n)
            d_sink[h] = sink_gradient(job, h);
        for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;)
            run_backward_task(job, w, task);
        team.barrier();
        for_lines([&](int64_t b, int64_t h, int64_t i) { write_d_q(job, b, h, i); });
    });
}

} // namespace keel_cpu
