#include "kv/inputs/policy_inputs.hpp"

#include "device/device.hpp"
#include "kv/inputs/key_unrotation.hpp"
#include "kv/inputs/range_scores.hpp"

#include <algorithm>

namespace keel {
namespace {

// An eviction computes its inputs for some layers at a time. It takes as many layers as fit in an
// array of this many numbers (256 KiB), but at least one layer.
constexpr int64_t numbers_at_a_time = int64_t{64} << 10;

int64_t window_rows(const PolicySetup &setup) {
    const KvShape &s = setup.shape();
    const bool per_query_head =
        setup.needs(KEEL_NEED_WINDOW_SCORES) && setup.needs().reduce_group == KEEL_REDUCE_NONE;
    return per_query_head ? s.heads : s.kv_heads;
}

} // namespace

PolicyInputs::PolicyInputs(PolicySetup &setup, keel_buffer_kind placement)
    : setup_(setup), placement_(placement) {
    const KvShape &s = setup.shape();
    const Collected &g = setup.collected();
    const InputOps &ops = setup.inputs();
    Executor &ex = setup.executor();
    if (g.window > 0) window_ = std::make_unique<WindowScores>(setup, placement);
    if (g.stats)
        stats_ =
            std::make_unique<QueryStats>(ex, s, ops.query_stats.get(), g.stats->skip, placement);
    const SlotSums::Ops of_sums = {ops.clear_sums.get(), ops.read_sums.get(), ops.grow_sums.get()};
    if (g.running) running_ = std::make_unique<SlotSums>(ex, s, of_sums, placement);
    if (g.chunks) chunks_ = std::make_unique<SlotSums>(ex, s, of_sums, placement);
    for (SlotSums *sums : {running_.get(), chunks_.get()}) {
        if (sums != nullptr) sums_.push_back(sums);
    }
    ranges_ = Tensor::shape(KEEL_DTYPE_I32, {1, 2});
}

// ---- steps --------------------------------------------------------------------------------------

StepTap *PolicyInputs::begin_step(const KvCache &cache, const WindowScores::Step &step) {
    step_cache_ = &cache;
    step_first_ = step.first;
    step_ = step.n;
    const bool windowed = window_ && window_->begin(cache, step);
    if (running_) running_->begin(cache);
    if (stats_) stats_->begin(step.first, step.n);
    pieces_.clear();
    // Decoded tokens add nothing to chunk scores, so these sums are not prepared here. The next
    // prompt or eviction sets their entries to 0.
    if (chunks_ && step.kind != StepKind::decode) {
        chunks_->begin(cache);
        const int64_t chunk = setup_.collected().chunks->tokens;
        for (int64_t i = 0; i < step.n;) {
            const int64_t end = std::min(step.n, i + chunk - (step.first + i) % chunk);
            pieces_.push_back({i, end});
            i = end;
        }
    }
    return windowed || running_ || stats_ || !pieces_.empty() ? this : nullptr;
}

StepTap::Places PolicyInputs::places(uint32_t layer) {
    Places places;
    if (window_) places.queries = window_->place(layer);
    if (stats_) places.unrotated = stats_->place(layer);
    if (running_) {
        const Collected::Running &form = *setup_.collected().running;
        step_scores_.out = running_->layer(layer).c();
        step_scores_.reduce_queries = form.queries;
        step_scores_.reduce_group = form.group;
        step_scores_.accumulate = 1;
        places.scores = &step_scores_;
    }
    return places;
}

void PolicyInputs::after_attention(uint32_t layer, const Tensor &q) {
    if (stats_) stats_->written(layer);
    if (window_) window_->take(*step_cache_, layer, q);
    for (const Piece &piece : pieces_) score_piece(layer, q, piece);
}

// Returns the positions of the queries of tokens first..first + n - 1, or NULL if no logit rule
// needs them.
const keel_tensor *PolicyInputs::positions_of(int64_t first, int64_t n) {
    if (setup_.logit_rules().window == 0) return nullptr;
    return query_positions_.write(setup_.executor(), placement_, first, n);
}

// Adds the scores that the queries of a piece give to all slots of the piece, including slots that
// are masked for a query.
void PolicyInputs::score_piece(uint32_t layer, const Tensor &q, const Piece &piece) {
    if (ranges_.buffer() == nullptr)
        ranges_ = Tensor::allocate(setup_.executor().device(), KEEL_DTYPE_I32, {1, 2}, placement_);
    RangeScores job(setup_, *step_cache_, layer, ranges_);
    job.q = q.rows(piece.begin, piece.end - piece.begin);
    job.out = chunks_->layer(layer);
    job.queries = KEEL_REDUCE_SUM;
    job.group = setup_.collected().chunks->group;
    job.q_positions = positions_of(step_first_ + piece.begin, piece.end - piece.begin);
    job.run([&](uint32_t head) {
        const int64_t begin = step_cache_->length(layer, head) - step_;
        return RangeScores::Ranges{{begin + piece.begin, begin + piece.end}};
    });
}

void PolicyInputs::end_prompt(const KvCache &cache) {
    release();
    if (window_) window_->end_prompt();
    if (stats_) stats_->free_step();
    for (SlotSums *sums : sums_) sums->fit(cache);
}

// ---- an eviction --------------------------------------------------------------------------------

Tensor PolicyInputs::room(ReadArray &array, int64_t rows, int64_t columns) {
    return array.room(setup_.executor().device(), placement_, rows, columns);
}

void PolicyInputs::queue_keys(PlannedOp *op, uint64_t features, const KvCache &cache,
                              uint32_t layer, const Tensor &out) {
    keel_keys_args args = {KEEL_HEADER(keel_keys_args)};
    args.features = features;
    args.kv = cache.view(layer);
    args.out = out.c();
    args.end = eviction_.stride;
    setup_.executor().run(*op, args);
}

// Queues the dot product of each key with the sum of its head's keys. The op uses one query for
// each KV head.
void PolicyInputs::queue_anchor(const KvCache &cache, uint32_t layer) {
    const KvShape &s = setup_.shape();
    const int64_t heads = s.kv_heads, at = (layer - first_) * heads;
    const Tensor q = key_sum_.rows(at, heads).reshape({1, heads, s.head_dim});
    const Tensor out = key_anchor_.rows(at, heads);
    keel_scores reduction = {KEEL_HEADER(keel_scores)};
    reduction.out = out.c();
    reduction.reduce_queries = reduction.reduce_group = KEEL_REDUCE_SUM;
    keel_attention_scores_args args = {KEEL_HEADER(keel_attention_scores_args)};
    args.features = KEEL_SCORES_LOGITS;
    args.q = q.c();
    args.kv = cache.view(layer);
    args.scores = &reduction;
    args.scale = 1;
    setup_.executor().run(*setup_.inputs().key_anchor, args);
}

void PolicyInputs::queue_layer(const KvCache &cache, uint32_t layer) {
    const InputOps &ops = setup_.inputs();
    const int64_t heads = setup_.shape().kv_heads, at = (layer - first_) * heads;
    if (needs(KEEL_NEED_KEY_NORMS))
        queue_keys(ops.key_norms.get(), KEEL_KEYS_NORMS, cache, layer, key_norms_.rows(at, heads));
    if (needs(KEEL_NEED_VALUE_NORMS))
        queue_keys(ops.value_norms.get(), 0, cache, layer, value_norms_.rows(at, heads));
    if (needs(KEEL_NEED_KEY_SUM | KEEL_NEED_KEY_ANCHOR))
        queue_keys(ops.key_sum.get(), KEEL_KEYS_NORMALIZED, cache, layer, key_sum_.rows(at, heads));
    if (needs(KEEL_NEED_KEY_ANCHOR)) queue_anchor(cache, layer);
}

bool PolicyInputs::has_queries(const KvCache &cache, int64_t tail) {
    return window_ && window_->prepare(tail, cache.max_length()) > 0;
}

void PolicyInputs::begin_eviction(const KvCache &cache, const Eviction &eviction) {
    eviction_ = eviction;
    read_ = {};
    // Sums move together with the slots. So a slot needs a sum even if no step has added to this
    // sum.
    for (SlotSums *sums : sums_) sums->begin(cache);
    if (needs(KEEL_NEED_WINDOW_SCORES)) queries_ = window_->prepare(eviction.tail, eviction.stride);
    if (stats_) {
        stats_->add_waiting();
        stats_->free_step(); // frees this memory now, because the eviction also needs memory
    }
}

uint32_t PolicyInputs::layers_at_a_time(const PolicySetup &setup, uint32_t layers, int64_t stride) {
    const int64_t of_layer = std::max<int64_t>(1, window_rows(setup) * stride);
    return static_cast<uint32_t>(std::clamp<int64_t>(numbers_at_a_time / of_layer, 1, layers));
}

uint32_t PolicyInputs::layers_at_a_time() const {
    return layers_at_a_time(setup_, eviction_.layers, eviction_.stride);
}

// Queues a copy of the sums, for the layers that are computed now.
void PolicyInputs::queue_sums(const SlotSums &sums, ReadArray &array) {
    const int64_t heads = setup_.shape().kv_heads;
    sums.copy_to(first_ * heads, room(array, layers_ * heads, eviction_.stride));
}

void PolicyInputs::compute(const KvCache &cache, uint32_t first, uint32_t layers) {
    const KvShape &s = setup_.shape();
    const int64_t rows = int64_t{layers} * s.kv_heads, stride = eviction_.stride;
    first_ = first;
    layers_ = layers;
    if (needs(KEEL_NEED_KEY_NORMS)) room(key_norms_, rows, stride);
    if (needs(KEEL_NEED_VALUE_NORMS)) room(value_norms_, rows, stride);
    if (needs(KEEL_NEED_KEY_SUM | KEEL_NEED_KEY_ANCHOR)) room(key_sum_, rows, s.head_dim);
    if (needs(KEEL_NEED_KEY_ANCHOR)) room(key_anchor_, rows, stride);
    for (uint32_t l = first; l < first + layers; ++l) queue_layer(cache, l);
    if (needs(KEEL_NEED_WINDOW_SCORES))
        window_->queue(cache, first, layers, stride, eviction_.seen);
    if (needs(KEEL_NEED_RUNNING_SCORES)) queue_sums(*running_, scores_);
    if (needs(KEEL_NEED_CHUNK_SCORES)) queue_sums(*chunks_, chunk_scores_);
    if (needs(KEEL_NEED_REPLAY)) {
        const Tensor from =
                         repeat_scores_.rows(first * int64_t{s.kv_heads}, rows).columns(0, stride),
                     to = room(scores_, rows, stride);
        keel_move_args args = {KEEL_HEADER(keel_move_args)};
        args.x = from.c();
        args.out = to.c();
        setup_.executor().run(*setup_.inputs().read_sums, args);
    }
    read_all();
}

// The first read waits for all work that compute() queued.
void PolicyInputs::read_all() {
    const int64_t rows = int64_t{layers_} * setup_.shape().kv_heads;
    const auto read = [&](uint64_t bits, ReadArray &array, const float *&to) {
        if (needs(bits)) to = array.read(0, rows);
    };
    read(KEEL_NEED_KEY_NORMS, key_norms_, read_.key_norms);
    read(KEEL_NEED_VALUE_NORMS, value_norms_, read_.value_norms);
    read(KEEL_NEED_KEY_SUM, key_sum_, read_.key_sum);
    read(KEEL_NEED_KEY_ANCHOR, key_anchor_, read_.key_anchor);
    read(KEEL_NEED_RUNNING_SCORES | KEEL_NEED_REPLAY, scores_, read_.scores);
    read(KEEL_NEED_CHUNK_SCORES, chunk_scores_, read_.chunk_scores);
    if (!needs(KEEL_NEED_WINDOW_SCORES)) return;
    if (queries_ > 0) {
        read_.scores = window_->read(first_, layers_);
    } else { // the newest tokens were evicted, so there are no queries and all scores are 0
        no_scores_.assign(static_cast<size_t>(layers_ * window_->rows() * eviction_.stride), 0.0F);
        read_.scores = no_scores_.data();
    }
}

// Reads keys, one layer at a time, because keys are the largest input.
const float *PolicyInputs::read_keys(PlannedOp *op, const KvCache &cache, uint32_t layer,
                                     int64_t columns, const Tensor &matrix, ReadArray &array) {
    const int64_t heads = setup_.shape().kv_heads, stride = eviction_.stride;
    const Tensor out = room(array, heads, stride * columns).reshape({heads, stride, columns});
    keel_keys_args args = {KEEL_HEADER(keel_keys_args)};
    args.kv = cache.view(layer);
    if (needs(KEEL_NEED_UNROTATED)) {
        if (!unrotation_) unrotation_ = std::make_unique<KeyUnrotation>(setup_, placement_);
        args.features = KEEL_KEYS_UNROTATED;
        args.kv = unrotation_->prepare(cache, layer);
        args.tables = unrotation_->tables();
    }
    args.projection = matrix.c();
    args.out = out.c();
    args.end = stride;
    setup_.executor().run(*op, args);
    return array.read(0, heads);
}

void PolicyInputs::fill(const KvCache &cache, uint32_t layer, keel_policy_input &input) {
    const KvShape &s = setup_.shape();
    const InputOps &ops = setup_.inputs();
    const auto at = [&](const float *rows, int64_t of_layer, int64_t columns) {
        return rows == nullptr ? nullptr : rows + (layer - first_) * of_layer * columns;
    };
    const int64_t heads = s.kv_heads, dim = s.head_dim, stride = eviction_.stride;
    input.key_norms = at(read_.key_norms, heads, stride);
    input.value_norms = at(read_.value_norms, heads, stride);
    input.key_sum = at(read_.key_sum, heads, dim);
    input.key_anchor = at(read_.key_anchor, heads, stride);
    input.chunk_scores = at(read_.chunk_scores, heads, stride);
    if (needs(KEEL_NEED_WINDOW_SCORES)) {
        input.scores = at(read_.scores, window_->rows(), stride);
        input.query_count = queries_;
    }
    if (needs(KEEL_NEED_RUNNING_SCORES | KEEL_NEED_REPLAY)) {
        input.scores = at(read_.scores, heads, stride);
        input.query_count = eviction_.seen;
    }
    if (needs(KEEL_NEED_QUERY_STATS)) {
        const int64_t from = int64_t{layer} * s.heads;
        input.query_sum = read_floats(stats_->sum().rows(from, s.heads), query_sum_);
        input.query_second = read_floats(stats_->second().rows(from, s.heads), query_second_);
        input.query_count = stats_->count();
    }
    if (needs(KEEL_NEED_KEYS)) input.keys = read_keys(ops.keys.get(), cache, layer, dim, {}, keys_);
    if (!needs(KEEL_NEED_KEY_PROJECT)) return;
    const int64_t columns = setup_.needs().projection_cols;
    if (projection_.empty()) {
        projection_ = Tensor::allocate(setup_.executor().device(), KEEL_DTYPE_F32, {dim, columns},
                                       placement_);
        projection_.write(setup_.projection().data());
    }
    input.key_project =
        read_keys(ops.key_project.get(), cache, layer, columns, projection_, key_project_);
}

// Scores that a step computed cover all layers, and only one eviction uses them. So they are always
// freed.
void PolicyInputs::finish_eviction(bool again_soon) {
    if (!again_soon) return release();
    if (window_) window_->release();
}

std::vector<Tensor> PolicyInputs::companions(uint32_t layer) const {
    std::vector<Tensor> all;
    for (const SlotSums *sums : sums_) all.push_back(sums->layer(layer));
    return all;
}

void PolicyInputs::compacted(const KvCache &cache) {
    for (SlotSums *sums : sums_) sums->shrunk(cache);
}

const Tensor &PolicyInputs::repeat_scores(int64_t slots) {
    const KvShape &s = setup_.shape();
    const int64_t rows = int64_t{s.layers} * s.kv_heads;
    if (repeat_scores_.empty() || repeat_scores_.dim(1) < slots) {
        repeat_scores_ = {};
        repeat_scores_ =
            Tensor::allocate(setup_.executor().device(), KEEL_DTYPE_F32, {rows, slots}, placement_);
    }
    const std::vector<float> zeros(static_cast<size_t>(repeat_scores_.dim(1)));
    for (int64_t row = 0; row < rows; ++row) repeat_scores_.rows(row, 1).write(zeros.data());
    return repeat_scores_;
}

} // namespace keel
