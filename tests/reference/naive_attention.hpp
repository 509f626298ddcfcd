#pragma once

#include "reference/bench.hpp"

namespace keel::test {

// Computes attention by its definition: one query, head and slot at a time.
struct NaiveAttention {
    const BenchCache &cache;
    const Values &q; // [m, heads, dim]
    int64_t m, heads;
    double scale;
    std::function<bool(int64_t i, int64_t kv_head, int64_t slot)> sees;
    double softcap = 0;

    Values q_row(int64_t i, int64_t h) const {
        const auto at = q.begin() + (i * heads + h) * cache.dim;
        return {at, at + cache.dim};
    }
    int64_t kv_head(int64_t h) const { return h / (heads / cache.heads); }
    double logit(int64_t i, int64_t h, int64_t slot) const {
        const Values row = q_row(i, h);
        const Values &key = cache.k[static_cast<size_t>(kv_head(h))][static_cast<size_t>(slot)];
        double sum = 0;
        for (size_t e = 0; e < row.size(); ++e) sum += row[e] * key[e];
        sum *= scale;
        return softcap > 0 ? softcap * std::tanh(sum / softcap) : sum;
    }
    double weight_sum(int64_t i, int64_t h) const {
        double sum = 0;
        for (int64_t j = 0; j < cache.length(kv_head(h)); ++j)
            sum += sees(i, kv_head(h), j) ? std::exp(logit(i, h, j)) : 0;
        return sum;
    }
    double probability(int64_t i, int64_t h, int64_t slot) const {
        return sees(i, kv_head(h), slot) ? std::exp(logit(i, h, slot)) / weight_sum(i, h) : 0;
    }
    Values out() const {
        Values all;
        for (int64_t i = 0; i < m; ++i) {
            for (int64_t h = 0; h < heads; ++h) {
                for (int64_t e = 0; e < cache.v_dim; ++e) {
                    double sum = 0;
                    for (int64_t j = 0; j < cache.length(kv_head(h)); ++j) {
                        sum += probability(i, h, j) *
                               cache.v[static_cast<size_t>(kv_head(h))][static_cast<size_t>(j)]
                                      [static_cast<size_t>(e)];
                    }
                    all.push_back(sum);
                }
            }
        }
        return all;
    }
};

// The causal rule: query i of m sees key j if j <= length - m + i.
inline auto causal(const BenchCache &cache, int64_t m) {
    return
        [&cache, m](int64_t i, int64_t head, int64_t j) { return j <= cache.length(head) - m + i; };
}

inline auto everything() {
    return [](int64_t, int64_t, int64_t) { return true; };
}

} // namespace keel::test
