// A step of several sequences: one pass of all their rows through the model, each row's attention over its own cache.
#include "graph/graph.hpp"

#include "base/error.hpp"
#include "graph/graph_args.hpp"

#include <algorithm>

namespace keel {

void Graph::forward_batch(std::span<const int32_t> ids, std::span<const int32_t> positions,
                          std::span<const BatchRow> rows,
                          std::span<const keel_batch_kv *const> together) {
    const auto n = static_cast<uint32_t>(ids.size());
    if (n == 0 || n > options_.batch || positions.size() != n || rows.size() != n ||
        !weights_.has_embedding() || !weights_.has_output()) {
        throw_error(ErrorKind::internal,
                    "a step of {} sequences, {} positions and {} caches; planned for {} sequences",
                    n, positions.size(), rows.size(), options_.batch);
    }
    StepOps &ops = n == 1 ? decode_ : batch_;
    ++turn_;
    const Tensor on_device = ids_.rows(0, n), x = x_.rows(0, n);
    on_device.write(ids.data());
    positions_.rows(0, n).write(positions.data());
    const bool rotations_are_there = ensure_rotations(positions);
    const bool is_tapped = std::any_of(rows.begin(), rows.end(),
                                       [](const BatchRow &row) { return row.taps.tap != nullptr; });
    const bool attends_together =
        batched_ && n > 1 && !together.empty() && rotations_are_there && !is_tapped;
    last_m_ = n;
    executor_.run(*ops.embed, embed_args(on_device, x));
    if (probe_) probe_(-1, x);
    for (size_t i = 0; i < ops.layers.size(); ++i) {
        LayerOps &l = ops.layers[i];
        project_qkv(l, i, n);
        if (attends_together) {
            attend_together(i, n, *together[i]);
        } else {
            attend_apart(i, n, positions, rows, rotations_are_there);
        }
        finish_layer(l, i, n);
        if (probe_) probe_(static_cast<int64_t>(number(i)), x);
    }
    run_output(ops, n, n);
}

// Sequences whose positions lie a whole ring of tables apart want the same row of it: then each gets its own when its turn comes.
bool Graph::ensure_rotations(std::span<const int32_t> positions) {
    if (rope_.collide(positions)) return false;
    rope_.ensure(positions);
    if (local_rope_) local_rope_->ensure(positions);
    return true;
}

// Row after row, as a decode step of each sequence has it.
void Graph::attend_apart(size_t i, uint32_t n, std::span<const int32_t> positions,
                         std::span<const BatchRow> rows, bool rotations_are_there) {
    for (uint32_t r = 0; r < n; ++r) {
        if (!rotations_are_there) ensure_rotations(positions.subspan(r, 1));
        attend(decode_.layers[i], i, qkv_.rows(r, 1), attention_.rows(r, 1), positions_.rows(r, 1),
               rows[r].kv[i], rows[r].taps);
    }
}

namespace {

// Both calls of a layer, of n rows in place.
struct TogetherArgs {
    TogetherArgs(const Tensor &qkv, const Tensor &out, const Tensor &positions,
                 const RopeTables &rope, const LayerWeights &weights, const ModelConfig &config,
                 int64_t window)
        : views(qkv, config), heads(out.reshape({out.dim(0), config.heads, config.head_dim})),
          prepare(qkv_args(views, positions, rope, weights, nullptr, config.rms_norm_eps)),
          attention(attention_args(views.q, nullptr, heads, positions, config, window)) {}
    QkvViews views;
    Tensor heads;
    keel_qkv_args prepare;
    keel_attention_args attention;
};

} // namespace

// Layers with a window are settled too: what the backend takes of one it may refuse of the other.
void Graph::settle_batch() {
    if (options_.batch_kv == nullptr) return;
    const uint32_t n = options_.batch;
    const Tensor positions = positions_.rows(0, n);
    for (size_t i = 0; i < batch_.layers.size(); ++i) {
        const bool is_first =
            i == 0 || (config_.window(number(i)) > 0) != (config_.window(number(i - 1)) > 0);
        if (!is_first) continue;
        const TogetherArgs args(qkv_.rows(0, n), attention_.rows(0, n), positions, rope_of(i),
                                weights_.layer(i), config_, config_.window(number(i)));
        batched_ =
            BatchedDecode::settle(executor_, args.prepare, args.attention, *options_.batch_kv);
        if (!batched_) return;
    }
}

void Graph::attend_together(size_t i, uint32_t n, const keel_batch_kv &kv) {
    const Tensor positions = positions_.rows(0, n);
    const TogetherArgs args(qkv_.rows(0, n), attention_.rows(0, n), positions, rope_of(i),
                            weights_.layer(i), config_, config_.window(number(i)));
    batched_->qkv_prepare(args.prepare, kv);
    batched_->attention(args.attention, kv);
}

void Graph::queue_batch_argmax(uint32_t n) {
    if (n == 1) return queue_argmax();
    ++turn_;
    keel_rows_args args = {KEEL_HEADER(keel_rows_args)};
    const Tensor logits = logits_.rows(0, n), ids = next_ids_.rows(0, n);
    args.x = logits.c();
    args.index = ids.c();
    executor_.run(*batch_argmax_, args);
}

} // namespace keel
