#include "reference/check.hpp"
#include "reference/ops.hpp"
#include "reference/rows.hpp"

#include <optional>

namespace keel::reference {
namespace {

// Writes one token's K, V and position into its slot of a head, if the slot exists.
void append(const Cache &cache, int64_t head, int64_t slot, const Row &k, const Row &v,
            int32_t position) {
    if (slot < 0) return;
    store(cache.k_row(head, slot), cache.k_dtype(), k);
    store(cache.v_row(head, slot), cache.v_dtype(), v);
    cache.set_position(head, slot, position);
}

} // namespace

void check_kv_append(const keel_kv_append_args &a) {
    need_cache(a.kv, "kv");
    need(a.k, "k", types_float, {any_size, a.kv->kv_heads, a.kv->k->shape[2]});
    need(a.v, "v", types_float, {a.k->shape[0], a.kv->kv_heads, a.kv->v->shape[2]});
    need_positions(a.positions, "positions", a.k->shape[0], a.kv->kv_heads);
}

// Writes K, V and positions of m tokens to the slots lengths[h] - m + i.
void run_kv_append(const keel_kv_append_args &a) {
    const View k = bind(a.k);
    const View v = bind(a.v);
    const Positions positions(a.positions);
    const Cache cache(*a.kv);
    const int64_t m = a.k->shape[0];
    for (int64_t head = 0; head < cache.heads(); ++head) {
        const int64_t length = cache.length(head);
        for (int64_t i = 0; i < m; ++i) {
            append(cache, head, length - m + i, load(k, k.row(i, head)), load(v, v.row(i, head)),
                   positions.at(i, head));
        }
    }
}

void check_qkv_prepare(const keel_qkv_args &a) {
    need_cache(a.kv, "kv");
    const int64_t head_dim = a.kv->k->shape[2];
    need(a.q, "q", types_float, {any_size, any_size, head_dim});
    const int64_t m = a.q->shape[0];
    need(a.k, "k", types_float, {m, a.kv->kv_heads, head_dim});
    need(a.v, "v", types_float, {m, a.kv->kv_heads, a.kv->v->shape[2]});
    need_that(a.kv->kv_heads > 0 && a.q->shape[1] % a.kv->kv_heads == 0,
              "the number of heads is not a multiple of kv_heads");
    need_positions(a.positions, "positions", m, a.kv->kv_heads);
    need_tables(a.tables, head_dim);
    need(a.q_out, "q_out", types_float);
    need_same_shape(a.q, a.q_out, "q and q_out");
    if ((a.features & KEEL_QKV_NORM) != 0) {
        need(a.q_norm, "q_norm", types_f32, {head_dim});
        need(a.k_norm, "k_norm", types_f32, {head_dim});
    }
    if ((a.features & KEEL_QKV_UNROTATED) != 0 && a.q_unrotated != nullptr) {
        need(a.q_unrotated, "q_unrotated", types_f32);
        need_same_shape(a.q, a.q_unrotated, "q and q_unrotated");
    }
    if ((a.features & KEEL_QKV_UNROTATED) != 0 && a.k_unrotated != nullptr) {
        need(a.k_unrotated, "k_unrotated", types_f32);
        need_same_shape(a.k, a.k_unrotated, "k and k_unrotated");
    }
}

namespace {

// The steps for each head of queries and keys: normalize it, keep a copy, rotate it.
struct HeadSteps {
    const keel_qkv_args &a;
    Rotation rotation;
    Positions positions;

    explicit HeadSteps(const keel_qkv_args &args)
        : a(args), rotation(*args.tables), positions(args.positions) {}

    Row prepare(Row row, const keel_tensor *norm, const keel_tensor *unrotated, int64_t i,
                int64_t h, int32_t position) const {
        if ((a.features & KEEL_QKV_NORM) != 0)
            rms_normalize(row, load(bind(norm), bind(norm).data), a.eps);
        if ((a.features & KEEL_QKV_UNROTATED) != 0 && unrotated != nullptr) {
            const View copy = bind(unrotated);
            store(copy, copy.row(i, h), row);
        }
        rotation.at_position(row, position, false);
        return row;
    }
};

} // namespace

// Normalizes and rotates q and k, writes q_out, and appends K and V to the cache.
void run_qkv_prepare(const keel_qkv_args &a) {
    const View q = bind(a.q);
    const View k = bind(a.k);
    const View v = bind(a.v);
    const View q_out = bind(a.q_out);
    const Cache cache(*a.kv);
    const HeadSteps steps(a);
    const int64_t m = a.q->shape[0];
    const int64_t group = a.q->shape[1] / cache.heads();
    for (int64_t i = 0; i < m; ++i) {
        for (int64_t head = 0; head < cache.heads(); ++head) {
            const int32_t position = steps.positions.at(i, head);
            for (int64_t h = head * group; h < (head + 1) * group; ++h) {
                store(q_out, q_out.row(i, h),
                      steps.prepare(load(q, q.row(i, h)), a.q_norm, a.q_unrotated, i, h, position));
            }
            const Row key =
                steps.prepare(load(k, k.row(i, head)), a.k_norm, a.k_unrotated, i, head, position);
            append(cache, head, cache.length(head) - m + i, key, load(v, v.row(i, head)), position);
        }
    }
}

void check_kv_gather(const keel_kv_gather_args &a) {
    need_cache(a.from, "from");
    need_cache(a.to, "to");
    need_that(a.from->kv_heads == a.to->kv_heads, "from and to differ in kv_heads");
    need_that(a.from->k->shape[2] == a.to->k->shape[2] && a.from->v->shape[2] == a.to->v->shape[2],
              "from and to differ in head_dim");
    need_same_dtype(a.from->k, a.to->k, "from.k and to.k");
    need_same_dtype(a.from->v, a.to->v, "from.v and to.v");
    need(a.index, "index", types_i32, {a.from->kv_heads, any_size});
    need(a.count, "count", types_i32, {a.from->kv_heads});
    need_that(a.n_sides == 0 || a.sides != nullptr, "sides are missing");
    for (uint32_t s = 0; s < a.n_sides; ++s)
        need(a.sides[s], "a side array", types_number, {a.from->kv_heads, any_size});
}

// Copies slot index[h][j] of `from` to slot j of `to`. Compacts side arrays in place.
void run_kv_gather(const keel_kv_gather_args &a) {
    const Cache from(*a.from);
    const Cache to(*a.to);
    const View index = bind(a.index);
    const View count = bind(a.count);
    for (int64_t head = 0; head < from.heads(); ++head) {
        const int32_t n = count.integer(head);
        need_that(n >= 0 && n <= index.n, "a count is negative or larger than the index list");
        for (int64_t j = 0; j < n; ++j) {
            const int32_t source = index.integer(head, j);
            need_that(source >= j, "an index list does not rise strictly, or has a negative index");
            std::memmove(to.k_row(head, j), from.k_row(head, source), from.k_bytes());
            std::memmove(to.v_row(head, j), from.v_row(head, source), from.v_bytes());
            to.set_position(head, j, from.position(head, source));
            for (uint32_t s = 0; s < a.n_sides; ++s) {
                const View side = bind(a.sides[s]);
                need_that(source < side.n, "an index is larger than a side array");
                // integer() is right for f32 too, because f32 and i32 both have four bytes
                View::set(side.row(head), j, side.integer(head, source));
            }
        }
    }
}

void check_kv_rerotate(const keel_kv_rerotate_args &a) {
    need_cache(a.kv, "kv");
    need_tables(a.tables, a.kv->k->shape[2]);
    need_that(a.begin >= 0 && a.begin <= a.end, "begin and end are not a valid range");
    need(a.row, "row", types_i32, {a.kv->kv_heads, any_size});
    need(a.new_positions, "new_positions", types_i32, {a.kv->kv_heads, any_size});
    if ((a.features & KEEL_REROTATE_SOURCE) != 0) {
        need(a.source, "source", types_f32, {a.kv->kv_heads, a.end - a.begin, a.kv->k->shape[2]});
    }
}

// Computes K[j] = rotate(K[j] or source[j - begin], by row[h][j] of the tables) and positions =
// new_positions.
void run_kv_rerotate(const keel_kv_rerotate_args &a) {
    const Cache cache(*a.kv);
    const Rotation rotation(*a.tables);
    const View rows = bind(a.row);
    const View new_positions = bind(a.new_positions);
    const bool from_source = (a.features & KEEL_REROTATE_SOURCE) != 0;
    const View source = from_source ? bind(a.source) : View();
    for (int64_t head = 0; head < cache.heads(); ++head) {
        const int64_t end = std::min(a.end, cache.length(head));
        need_that(end <= rows.n && end <= new_positions.n,
                  "row or new_positions have too few slots");
        for (int64_t j = a.begin; j < end; ++j) {
            const int32_t row = rows.integer(head, j);
            if (row < 0) continue;
            Row key = from_source ? load(source, source.row(head, j - a.begin)) : cache.k(head, j);
            rotation.by_row(key, row, false);
            store(cache.k_row(head, j), cache.k_dtype(), key);
            cache.set_position(head, j, new_positions.integer(head, j));
        }
    }
}

} // namespace keel::reference
