#include "reference/check.hpp"
#include "reference/ops.hpp"
#include "reference/rows.hpp"

#include <cmath>
#include <optional>

namespace keel::reference {
namespace {

double l2_norm(const Row &row) { return std::sqrt(dot(row, row)); }

void need_range(const keel_keys_args &a) {
    need_cache(a.kv, "kv");
    need_that(a.begin >= 0 && a.begin <= a.end, "begin and end are not a valid range");
}

// Calls body(head, slot) for the slots in use among begin..end-1.
template <typename Body>
void each_slot(const keel_keys_args &a, const Cache &cache, int64_t out_slots, const Body &body) {
    for (int64_t head = 0; head < cache.heads(); ++head) {
        const int64_t end = std::min(a.end, cache.length(head));
        need_that(end <= out_slots, "out has too few slots");
        for (int64_t slot = a.begin; slot < end; ++slot) body(head, slot);
    }
}

} // namespace

void check_key_project(const keel_keys_args &a) {
    need_range(a);
    const int64_t head_dim = a.kv->k->shape[2];
    if (has(a.features, KEEL_KEYS_UNROTATED)) need_tables(a.tables, head_dim);
    if (has(a.features, KEEL_KEYS_NORMS)) {
        need_that(a.projection == nullptr, "with NORMS, projection must be NULL");
        need(a.out, "out", types_f32, {a.kv->kv_heads, any_size});
        return;
    }
    if (a.projection != nullptr) need(a.projection, "projection", types_f32, {head_dim, any_size});
    const int64_t r = a.projection != nullptr ? a.projection->shape[1] : head_dim;
    need(a.out, "out", types_f32, {a.kv->kv_heads, any_size, r});
}

// out[h][j][:] = K_j * projection or K_j; or out[h][j] = ||K_j||
void run_key_project(const keel_keys_args &a) {
    const Cache cache(*a.kv);
    const View out = bind(a.out);
    const auto rotation =
        has(a.features, KEEL_KEYS_UNROTATED) ? std::optional<Rotation>(*a.tables) : std::nullopt;
    std::vector<Row> projection; // the rows of the matrix, [head_dim, r]
    if (a.projection != nullptr) {
        const View matrix = bind(a.projection);
        for (int64_t i = 0; i < matrix.outer[2]; ++i)
            projection.push_back(load(matrix, matrix.row(i)));
    }
    each_slot(a, cache, a.out->shape[1], [&](int64_t head, int64_t slot) {
        Row key = cache.k(head, slot);
        if (rotation) rotation->at_position(key, cache.position(head, slot), true);
        if (has(a.features, KEEL_KEYS_NORMS)) {
            View::set(out.row(head), slot, static_cast<float>(l2_norm(key)));
        } else if (a.projection == nullptr) {
            store(out, out.row(head, slot), key);
        } else {
            Row product(static_cast<size_t>(out.n), 0.0);
            for (size_t i = 0; i < key.size(); ++i) {
                for (size_t c = 0; c < product.size(); ++c) product[c] += key[i] * projection[i][c];
            }
            store(out, out.row(head, slot), product);
        }
    });
}

void check_key_sum(const keel_keys_args &a) {
    need_range(a);
    need(a.out, "out", types_f32, {a.kv->kv_heads, a.kv->k->shape[2]});
}

// out[h][:] = sum of K_j, or of K_j / ||K_j||
void run_key_sum(const keel_keys_args &a) {
    const Cache cache(*a.kv);
    const View out = bind(a.out);
    std::vector<Row> sums(static_cast<size_t>(cache.heads()),
                          Row(static_cast<size_t>(cache.head_dim()), 0.0));
    each_slot(a, cache, a.end, [&](int64_t head, int64_t slot) {
        const Row key = cache.k(head, slot);
        const double norm = has(a.features, KEEL_KEYS_NORMALIZED) ? l2_norm(key) : 1.0;
        if (norm == 0) return;
        for (size_t i = 0; i < key.size(); ++i) sums[head][i] += key[i] / norm;
    });
    for (int64_t head = 0; head < cache.heads(); ++head) store(out, out.row(head), sums[head]);
}

void check_value_norms(const keel_keys_args &a) {
    need_range(a);
    need(a.out, "out", types_f32, {a.kv->kv_heads, any_size});
}

// out[h][j] = ||V_j||_2 or ||V_j||_1
void run_value_norms(const keel_keys_args &a) {
    const Cache cache(*a.kv);
    const View out = bind(a.out);
    each_slot(a, cache, out.n, [&](int64_t head, int64_t slot) {
        const Row value = cache.v(head, slot);
        double norm = 0;
        for (const double e : value) norm += std::fabs(e);
        if (!has(a.features, KEEL_KEYS_L1)) norm = l2_norm(value);
        View::set(out.row(head), slot, static_cast<float>(norm));
    });
}

void check_query_stats(const keel_query_stats_args &a) {
    need(a.q, "q", types_f32, {any_size, any_size, any_size});
    const int64_t heads = a.q->shape[1];
    const int64_t head_dim = a.q->shape[2];
    need(a.sum, "sum", types_f32, {heads, head_dim});
    if (a.second != nullptr) need(a.second, "second", types_f32, {heads, head_dim, head_dim});
}

// sum[h] += q; second[h] += q q^T
void run_query_stats(const keel_query_stats_args &a) {
    const View q = bind(a.q);
    const View sum = bind(a.sum);
    for (int64_t h = 0; h < a.q->shape[1]; ++h) {
        std::vector<Row> queries;
        for (int64_t i = 0; i < a.q->shape[0]; ++i) queries.push_back(load(q, q.row(i, h)));
        Row total = load(sum, sum.row(h));
        for (const Row &query : queries) {
            for (size_t e = 0; e < total.size(); ++e) total[e] += query[e];
        }
        store(sum, sum.row(h), total);
        for (int64_t e = 0; e < q.n && a.second != nullptr; ++e) {
            const View second = bind(a.second);
            Row products = load(second, second.row(h, e));
            for (const Row &query : queries) {
                for (size_t f = 0; f < products.size(); ++f) products[f] += query[e] * query[f];
            }
            store(second, second.row(h, e), products);
        }
    }
}

} // namespace keel::reference
