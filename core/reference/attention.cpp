#include "reference/check.hpp"
#include "reference/ops.hpp"
#include "reference/rows.hpp"
#include "reference/scores.hpp"

#include <cmath>
#include <limits>
#include <optional>

namespace keel::reference {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

// Returns the slots to which query i of m queries attends, in a head with `length` slots.
std::vector<bool> seen_slots(bool causal, int64_t i, int64_t m, int64_t length) {
    std::vector<bool> seen(static_cast<size_t>(length), true);
    for (int64_t j = 0; j < length && causal; ++j) seen[j] = j <= length - m + i;
    return seen;
}

// Removes slots from `seen` that are outside of the model's attention window. A slot j is inside if
// position - positions[j] < window.
void hide_outside_window(std::vector<bool> &seen, const Cache &cache, int64_t head,
                         int64_t position, int64_t window) {
    for (size_t j = 0; j < seen.size(); ++j) {
        const int64_t slot = cache.position(head, static_cast<int64_t>(j));
        seen[j] = seen[j] && position - slot < window;
    }
}

void cap_logits(Row &logits, double cap) {
    for (double &logit : logits) logit = cap * std::tanh(logit / cap);
}

// Computes the softmax over the slots in `seen`, in place. The other slots become 0. Returns
// log(sum of exp), or -inf if `seen` has no slot.
double softmax_seen(Row &logits, const std::vector<bool> &seen) {
    double largest = minus_infinity;
    double sum = 0;
    bool any = false;
    for (size_t j = 0; j < logits.size(); ++j) {
        if (seen[j]) largest = larger(largest, logits[j]);
        any = any || seen[j];
    }
    for (size_t j = 0; j < logits.size(); ++j) {
        logits[j] = seen[j] ? std::exp(logits[j] - largest) : 0.0;
        sum += logits[j];
    }
    if (!any) return minus_infinity;
    for (double &value : logits) value /= sum;
    return largest + std::log(sum);
}

std::vector<Row> keys_of(const Cache &cache, int64_t head, int64_t length) {
    std::vector<Row> keys;
    for (int64_t j = 0; j < length; ++j) keys.push_back(cache.k(head, j));
    return keys;
}

std::vector<Row> values_of(const Cache &cache, int64_t head, int64_t length) {
    std::vector<Row> values;
    for (int64_t j = 0; j < length; ++j) values.push_back(cache.v(head, j));
    return values;
}

// Computes scale * q . K[j] for the slots j in `seen`.
Row logits_of(const Row &q, const std::vector<Row> &keys, const std::vector<bool> &seen,
              double scale) {
    Row logits(keys.size(), 0.0);
    for (size_t j = 0; j < keys.size(); ++j) {
        if (seen[j]) logits[j] = scale * dot(q, keys[j]);
    }
    return logits;
}

// Computes sum_j p[j] V[j] over the slots j in `seen`.
Row weighted_sum(const Row &p, const std::vector<Row> &values, const std::vector<bool> &seen,
                 int64_t n) {
    Row sum(static_cast<size_t>(n), 0.0);
    for (size_t j = 0; j < p.size(); ++j) {
        for (size_t e = 0; e < sum.size() && seen[j]; ++e) sum[e] += p[j] * values[j][e];
    }
    return sum;
}

void need_queries(const keel_tensor *q, const keel_kv_view *kv) {
    need(q, "q", types_float, {any_size, any_size, any_size});
    need_cache(kv, "kv");
    need_that(kv->kv_heads > 0 && q->shape[1] % kv->kv_heads == 0,
              "the number of heads is not a multiple of kv_heads");
    need_that(kv->k->shape[2] == q->shape[2], "q and K differ in head_dim");
}

} // namespace

void check_attention(const keel_attention_args &a) {
    need_queries(a.q, a.kv);
    const int64_t m = a.q->shape[0];
    const int64_t heads = a.q->shape[1];
    need(a.out, "out", types_float, {m, heads, a.kv->v->shape[2]});
    if (has(a.features, KEEL_ATTENTION_WINDOW))
        need_positions(a.q_positions, "q_positions", m, a.kv->kv_heads);
    if (has(a.features, KEEL_ATTENTION_LSE)) need(a.lse, "lse", types_f32, {m, heads});
    if (has(a.features, KEEL_ATTENTION_SCORES))
        need_scores(a.scores, heads, a.kv->kv_heads, a.kv->max_length);
}

// Computes out[i, h, :] = sum_j softmax_j(scale * q[i, h] . K[j]) V[j].
void run_attention(const keel_attention_args &a) {
    const View q = bind(a.q);
    const View out = bind(a.out);
    const Cache cache(*a.kv);
    std::optional<Positions> positions;
    if (has(a.features, KEEL_ATTENTION_WINDOW)) positions.emplace(a.q_positions);
    const int64_t m = a.q->shape[0];
    const int64_t group = a.q->shape[1] / cache.heads();

    for (int64_t head = 0; head < cache.heads(); ++head) {
        const int64_t length = cache.length(head);
        const std::vector<Row> keys = keys_of(cache, head, length);
        const std::vector<Row> values = values_of(cache, head, length);
        std::optional<ScoreReducer> scores;
        if (has(a.features, KEEL_ATTENTION_SCORES))
            scores.emplace(*a.scores, m, head, group, length);
        for (int64_t h = head * group; h < (head + 1) * group; ++h) {
            if (scores) scores->begin_query_head();
            for (int64_t i = 0; i < m; ++i) {
                std::vector<bool> seen =
                    seen_slots(has(a.features, KEEL_ATTENTION_CAUSAL), i, m, length);
                if (positions)
                    hide_outside_window(seen, cache, head, positions->at(i, head), a.window);
                Row p = logits_of(load(q, q.row(i, h)), keys, seen, a.scale);
                if (has(a.features, KEEL_ATTENTION_SOFTCAP)) cap_logits(p, a.softcap);
                const double lse = softmax_seen(p, seen);
                store(out, out.row(i, h), weighted_sum(p, values, seen, cache.v_head_dim()));
                if (has(a.features, KEEL_ATTENTION_LSE))
                    View::set(bind(a.lse).row(i), h, static_cast<float>(lse));
                if (scores && scores->contributes(i)) scores->add(p, seen, true);
            }
        }
        if (scores) scores->write();
    }
}

void check_attention_scores(const keel_attention_scores_args &a) {
    need_queries(a.q, a.kv);
    if (has(a.features, KEEL_SCORES_RANGES)) need(a.ranges, "ranges", types_i32, {any_size, 2});
    if (has(a.features, KEEL_SCORES_WEIGHTS)) {
        need(a.weights, "weights", types_f32, {a.kv->kv_heads, any_size});
        need_that(a.weights->shape[1] >= a.kv->max_length,
                  "weights have fewer slots than max_length");
    }
    if (has(a.features, KEEL_SCORES_WINDOW))
        need_positions(a.q_positions, "q_positions", a.q->shape[0], a.kv->kv_heads);
    need_scores(a.scores, a.q->shape[1], a.kv->kv_heads, a.kv->max_length);
}

namespace {

// Returns the slots that are inside one of `ranges`.
std::vector<bool> in_ranges(const keel_tensor *ranges, int64_t length) {
    const View view = bind(ranges);
    std::vector<bool> inside(static_cast<size_t>(length), false);
    for (int64_t r = 0; r < view.outer[2]; ++r) {
        const int64_t begin = std::max(view.integer(r, 0), 0);
        const int64_t end = std::min<int64_t>(view.integer(r, 1), length);
        for (int64_t j = begin; j < end; ++j) inside[j] = true;
    }
    return inside;
}

} // namespace

// Computes the probabilities (or logits) of attention for given queries, reduced to one number per
// slot.
void run_attention_scores(const keel_attention_scores_args &a) {
    const View q = bind(a.q);
    const Cache cache(*a.kv);
    std::optional<Positions> positions;
    if (has(a.features, KEEL_SCORES_WINDOW)) positions.emplace(a.q_positions);
    const bool logits_only = has(a.features, KEEL_SCORES_LOGITS);
    const int64_t m = a.q->shape[0];
    const int64_t group = a.q->shape[1] / cache.heads();

    for (int64_t head = 0; head < cache.heads(); ++head) {
        const int64_t length = cache.length(head);
        const std::vector<Row> keys = keys_of(cache, head, length);
        const bool ranged = has(a.features, KEEL_SCORES_RANGES);
        const std::vector<bool> inside =
            ranged ? in_ranges(a.ranges, length) : std::vector<bool>(keys.size(), true);
        ScoreReducer scores(*a.scores, m, head, group, length);
        for (int64_t j = 0; j < length; ++j) {
            if (!inside[j]) scores.exclude(j);
        }
        for (int64_t h = head * group; h < (head + 1) * group; ++h) {
            scores.begin_query_head();
            for (int64_t i = 0; i < m; ++i) {
                if (!scores.contributes(i)) continue;
                std::vector<bool> seen =
                    seen_slots(has(a.features, KEEL_SCORES_CAUSAL), i, m, length);
                for (int64_t j = 0; j < length; ++j) seen[j] = seen[j] && inside[j];
                if (positions)
                    hide_outside_window(seen, cache, head, positions->at(i, head), a.window);
                Row p = logits_of(load(q, q.row(i, h)), keys, seen, a.scale);
                if (has(a.features, KEEL_SCORES_SOFTCAP)) cap_logits(p, a.softcap);
                if (!logits_only) softmax_seen(p, seen);
                for (int64_t j = 0; j < length && has(a.features, KEEL_SCORES_WEIGHTS); ++j) {
                    if (seen[j]) p[j] *= bind(a.weights).number(head, j);
                }
                scores.add(p, seen, !logits_only);
            }
        }
        scores.write();
    }
}

} // namespace keel::reference
