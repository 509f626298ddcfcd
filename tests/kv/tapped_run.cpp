#include "kv/tapped_run.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace keel::test {

TappedRun::TappedRun(const std::string &device, const KvShape &s, const CacheConfig &config,
                     const Collected &also)
    : shape(s), rig(device, s, config.rope_frequencies), paid_(size_t{s.layers} * s.kv_heads) {
    plan = std::make_unique<PolicySetup>(rig.executor(), s, rig.executor().device().host(), config,
                                         also);
    manager = std::make_unique<CacheManager>(*plan, rig.executor().placement());
    const KvTemplate kv(s);
    const Tensor q = Tensor::shape(KEEL_DTYPE_F32, {64, s.heads, s.head_dim});
    const Tensor sums =
        Tensor::shape(KEEL_DTYPE_F32, {s.kv_heads, s.blocks_per_head() * s.block_slots});
    keel_scores scores = {KEEL_HEADER(keel_scores)};
    scores.out = sums.c();
    scores.reduce_queries = scores.reduce_group = KEEL_REDUCE_SUM;
    scores.accumulate = 1;
    keel_attention_args args = {KEEL_HEADER(keel_attention_args)};
    args.features = KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_SCORES;
    args.q = args.out = q.c();
    args.kv = kv.view();
    args.scores = &scores;
    args.scale = 1;
    attention_ = rig.executor().plan(KEEL_OP_ATTENTION, args, {});
}

std::vector<EvictionRecord> TappedRun::step(int64_t n, StepKind kind) {
    manager->before_append(n, kind);
    const int64_t first = manager->tokens_seen();
    const auto next = manager->next_positions(n);
    const std::vector<int32_t> positions(next.begin(), next.end());
    std::vector<int64_t> tokens(static_cast<size_t>(n));
    std::iota(tokens.begin(), tokens.end(), first);
    manager->append(n);
    StepTap *tap = manager->begin_step(n, kind);
    rig.write(manager->cache(), tokens, positions);
    if (tap != nullptr) run_layers(tap, static_cast<uint32_t>(n), tokens, positions, *manager);
    note_paid(tokens);
    const auto records = manager->after_step(kind);
    return {records.begin(), records.end()};
}

// Calls a tap like Graph::forward does.
void TappedRun::run_layers(StepTap *tap, uint32_t m, const std::vector<int64_t> &tokens,
                           const std::vector<int32_t> &positions, CacheManager &of) {
    Device &device = rig.executor().device();
    std::vector<float> rotated, plain;
    for (size_t i = 0; i < m; ++i) {
        const auto q = rig.tokens().query(tokens[i], positions[i]),
                   u = rig.tokens().query(tokens[i], 0);
        rotated.insert(rotated.end(), q.begin(), q.end());
        plain.insert(plain.end(), u.begin(), u.end());
    }
    const Tensor own = Tensor::allocate(device, KEEL_DTYPE_F32, {m, shape.heads, shape.head_dim});
    const Tensor out = Tensor::allocate(device, KEEL_DTYPE_F32, {m, shape.heads, shape.head_dim});
    for (uint32_t l = 0; l < shape.layers; ++l) {
        const StepTap::Places places = tap->places(l);
        const Tensor &q = places.queries != nullptr ? *places.queries : own;
        q.write(rotated.data());
        if (places.unrotated != nullptr) places.unrotated->write(plain.data());
        if (places.scores != nullptr) {
            keel_attention_args args = {KEEL_HEADER(keel_attention_args)};
            args.features = KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_SCORES;
            args.q = q.c();
            args.out = out.c();
            args.kv = of.cache().view(l);
            args.scores = places.scores;
            args.scale = of.setup().geometry().attention_scale;
            rig.executor().run(*attention_, args);
        }
        tap->after_attention(l, q);
    }
}

std::vector<std::vector<double>>
TappedRun::probabilities(CacheManager &of, uint32_t layer, std::span<const float> query,
                         const std::vector<std::vector<bool>> &visible) {
    const auto keys = rig.keys(of.cache(), layer);
    const size_t dim = shape.head_dim, group = shape.heads / shape.kv_heads;
    const auto longest = static_cast<size_t>(of.cache().max_length(layer));
    std::vector<std::vector<double>> out;
    for (size_t h = 0; h < shape.heads; ++h) {
        const std::vector<bool> &sees = visible[h / group];
        std::vector<double> row(sees.size(), 0.0);
        double largest = -1e300, sum = 0;
        for (size_t j = 0; j < sees.size(); ++j) {
            if (!sees[j]) continue;
            for (size_t d = 0; d < dim; ++d)
                row[j] += static_cast<double>(query[h * dim + d]) *
                          static_cast<double>(keys[((h / group) * longest + j) * dim + d]);
            row[j] /= std::sqrt(static_cast<double>(dim));
            largest = std::max(largest, row[j]);
        }
        for (size_t j = 0; j < sees.size(); ++j) {
            if (sees[j]) sum += row[j] = std::exp(row[j] - largest);
        }
        for (size_t j = 0; j < sees.size(); ++j) row[j] = sees[j] ? row[j] / sum : 0.0;
        out.push_back(std::move(row));
    }
    return out;
}

void TappedRun::note_paid(const std::vector<int64_t> &tokens) {
    const size_t group = shape.heads / shape.kv_heads;
    for (uint32_t l = 0; l < shape.layers; ++l) {
        for (const int64_t token : tokens) {
            std::vector<std::vector<bool>> visible;
            for (uint32_t h = 0; h < shape.kv_heads; ++h) {
                std::vector<bool> sees;
                for (const int32_t position : manager->cache().positions(l, h))
                    sees.push_back(position <= token);
                visible.push_back(std::move(sees));
            }
            const auto p = probabilities(*manager, l, query(token), visible);
            for (size_t h = 0; h < shape.heads; ++h) {
                const auto positions =
                    manager->cache().positions(l, static_cast<uint32_t>(h / group));
                for (size_t j = 0; j < positions.size(); ++j)
                    paid_[l * shape.kv_heads + h / group][positions[j]] +=
                        p[h][j] / static_cast<double>(group);
            }
        }
    }
}

double reduce(keel_reduce how, const std::vector<double> &values) {
    if (how == KEEL_REDUCE_MAX) return *std::max_element(values.begin(), values.end());
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    return how == KEEL_REDUCE_MEAN ? sum / static_cast<double>(values.size()) : sum;
}

} // namespace keel::test
