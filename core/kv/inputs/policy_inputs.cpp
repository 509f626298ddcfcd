#include "kv/inputs/policy_inputs.hpp"

#include "device/device.hpp"
#include "kv/inputs/key_unrotation.hpp"
#include "kv/inputs/range_scores.hpp"

#include <algorithm>

namespace keel {

PolicyInputs::PolicyInputs(PolicySetup &setup, keel_buffer_kind placement)
    : setup_(setup), placement_(placement) {
    const KvShape &s = setup.shape();
    const Collected &g = setup.collected();
    const InputOps &ops = setup.inputs();
    Executor &ex = setup.executor();
    if (g.window > 0) {
        ring_ = std::make_unique<QueryRing>(ex, ops.shift_queries.get(), ops.place_queries.get(),
                                            ex.device().info().activation_dtype, s.layers, g.window,
                                            s.heads, s.head_dim, placement);
    }
    if (g.stats)
        stats_ =
            std::make_unique<QueryStats>(ex, s, ops.query_stats.get(), g.stats->skip, placement);
    companions_.resize(s.layers);
    const auto make_sums = [&](std::unique_ptr<SlotSums> &sums) {
        sums =
            std::make_unique<SlotSums>(ex, s, ops.clear_sums.get(), ops.read_sums.get(), placement);
        for (uint32_t l = 0; l < s.layers; ++l) companions_[l].push_back(sums->layer(l));
    };
    if (g.running) make_sums(running_);
    if (g.chunks) make_sums(chunks_);
    ranges_ = Tensor::shape(KEEL_DTYPE_I32, {1, 2});
}

// ---- steps --------------------------------------------------------------------------------------

StepTap *PolicyInputs::begin_step(const KvCache &cache, int64_t first, int64_t n, bool is_prompt) {
    if (setup_.collected().empty()) return nullptr;
    step_cache_ = &cache;
    first_ = first;
    step_ = n;
    if (ring_) ring_->begin(n);
    if (running_) running_->begin(cache);
    if (chunks_) chunks_->begin(cache);
    if (stats_) stats_->begin(first, n);
    pieces_.clear();
    if (!chunks_ || !is_prompt) return this;
    const int64_t chunk = setup_.collected().chunks->tokens;
    for (int64_t i = 0; i < n;) {
        const int64_t end = std::min(n, i + chunk - (first + i) % chunk);
        pieces_.push_back({i, end});
        i = end;
    }
    return this;
}

StepTap::Places PolicyInputs::places(uint32_t layer) {
    Places places;
    if (ring_ && step_ == 1) {
        step_row_ = ring_->next(layer);
        places.queries = &step_row_;
    }
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
    if (ring_ && step_ > 1) {
        const int64_t kept = std::min(step_, ring_->capacity());
        const Tensor from = q.rows(step_ - kept, kept), to = ring_->last(layer, kept);
        keel_move_args args = {KEEL_HEADER(keel_move_args)};
        args.x = from.c();
        args.out = to.c();
        setup_.executor().run(*setup_.inputs().keep_queries, args);
    }
    for (const Piece &piece : pieces_) score_piece(layer, q, piece);
}

// Of the queries of tokens first..first + n - 1; NULL if no rule needs them.
const keel_tensor *PolicyInputs::positions_of(int64_t first, int64_t n) {
    if (setup_.logit_rules().window == 0) return nullptr;
    return query_positions_.write(setup_.executor(), placement_, first, n);
}

// What the queries of a piece make of its own slots, seen and unseen.
void PolicyInputs::score_piece(uint32_t layer, const Tensor &q, const Piece &piece) {
    if (ranges_.buffer() == nullptr)
        ranges_ = Tensor::allocate(setup_.executor().device(), KEEL_DTYPE_I32, {1, 2}, placement_);
    RangeScores job(setup_, *step_cache_, layer, ranges_);
    job.q = q.rows(piece.begin, piece.end - piece.begin);
    job.out = chunks_->layer(layer);
    job.queries = KEEL_REDUCE_SUM;
    job.group = setup_.collected().chunks->group;
    job.q_positions = positions_of(first_ + piece.begin, piece.end - piece.begin);
    job.run([&](uint32_t head) {
        const int64_t begin = step_cache_->length(layer, head) - step_;
        return RangeScores::Ranges{{begin + piece.begin, begin + piece.end}};
    });
}

// ---- an eviction --------------------------------------------------------------------------------

Tensor PolicyInputs::room(Array &array, int64_t rows, int64_t columns) {
    const uint64_t bytes = static_cast<uint64_t>(rows * columns) * sizeof(float);
    if (array.device.empty() || array.device.buffer()->size() < bytes) {
        array.device = {};
        array.device = Tensor::allocate(setup_.executor().device(), KEEL_DTYPE_F32,
                                        {rows * columns}, placement_);
    }
    return {array.device.buffer(), 0, KEEL_DTYPE_F32, {rows, columns}};
}

void PolicyInputs::read(Array &array, int64_t rows, int64_t columns) {
    array.host.resize(static_cast<size_t>(rows * columns));
    room(array, rows, columns).read(array.host.data());
}

void PolicyInputs::queue_keys(PlannedOp *op, uint64_t features, const KvCache &cache,
                              uint32_t layer, const Tensor &out) {
    keel_keys_args args = {KEEL_HEADER(keel_keys_args)};
    args.features = features;
    args.kv = cache.view(layer);
    args.out = out.c();
    args.end = stride_;
    setup_.executor().run(*op, args);
}

void PolicyInputs::queue_window(const KvCache &cache, uint32_t layer) {
    const KvShape &s = setup_.shape();
    const keel_policy_needs &n = setup_.needs();
    const int64_t rows = n.reduce_group == KEEL_REDUCE_NONE ? s.heads : s.kv_heads;
    const Tensor out = room(scores_, layers_ * rows, stride_).rows(layer * rows, rows);
    const Tensor q = ring_->last(layer, queries_);
    keel_scores reduction = {KEEL_HEADER(keel_scores)};
    reduction.out = out.c();
    reduction.reduce_queries = n.reduce_queries;
    reduction.reduce_group = n.reduce_group;
    keel_attention_scores_args args = {KEEL_HEADER(keel_attention_scores_args)};
    args.features = KEEL_SCORES_CAUSAL;
    args.q = q.c();
    args.kv = cache.view(layer);
    args.scores = &reduction;
    args.scale = setup_.geometry().attention_scale;
    setup_.logit_rules().add_to(args, positions_of(seen_ - queries_, queries_));
    setup_.executor().run(*setup_.inputs().window_scores, args);
}

// The dot product of each key with its head's sum: one query for each KV head.
void PolicyInputs::queue_anchor(const KvCache &cache, uint32_t layer) {
    const KvShape &s = setup_.shape();
    const int64_t heads = s.kv_heads;
    const Tensor q = room(key_sum_, layers_ * heads, s.head_dim)
                         .rows(layer * heads, heads)
                         .reshape({1, heads, s.head_dim});
    const Tensor out = room(key_anchor_, layers_ * heads, stride_).rows(layer * heads, heads);
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
    const KvShape &s = setup_.shape();
    const InputOps &ops = setup_.inputs();
    const int64_t heads = s.kv_heads;
    const auto slots_of = [&](Array &array) {
        return room(array, layers_ * heads, stride_).rows(layer * heads, heads);
    };
    if (ops.key_norms)
        queue_keys(ops.key_norms.get(), KEEL_KEYS_NORMS, cache, layer, slots_of(key_norms_));
    if (ops.value_norms) queue_keys(ops.value_norms.get(), 0, cache, layer, slots_of(value_norms_));
    if (ops.key_sum) {
        const Tensor sums = room(key_sum_, layers_ * heads, s.head_dim).rows(layer * heads, heads);
        queue_keys(ops.key_sum.get(), KEEL_KEYS_NORMALIZED, cache, layer, sums);
    }
    if (ops.key_anchor) queue_anchor(cache, layer);
    if (ops.window_scores && queries_ > 0) queue_window(cache, layer);
}

void PolicyInputs::compute(const KvCache &cache, uint32_t layers, int64_t stride, int64_t tail,
                           int64_t seen) {
    const KvShape &s = setup_.shape();
    const InputOps &ops = setup_.inputs();
    const int64_t heads = int64_t{layers} * s.kv_heads;
    layers_ = layers;
    stride_ = stride;
    seen_ = seen;
    if (ring_) ring_->place_last();
    // A query's own token and those after it have to be there: what it sees is told by its distance
    // from the end.
    queries_ =
        ops.window_scores ? std::min({int64_t{setup_.needs().window}, ring_->held(), tail}) : 0;
    for (uint32_t l = 0; l < layers; ++l) queue_layer(cache, l);
    if (needs(KEEL_NEED_RUNNING_SCORES)) running_->copy_to(room(scores_, heads, stride));
    if (needs(KEEL_NEED_CHUNK_SCORES)) chunks_->copy_to(room(chunk_scores_, heads, stride));
    if (needs(KEEL_NEED_QUERY_STATS)) stats_->add_waiting();
    if (needs(KEEL_NEED_REPLAY)) {
        const Tensor from = repeat_scores_.rows(0, heads).columns(0, stride),
                     to = room(scores_, heads, stride);
        keel_move_args args = {KEEL_HEADER(keel_move_args)};
        args.x = from.c();
        args.out = to.c();
        setup_.executor().run(*ops.read_sums, args);
    }
    // From here on it is read: the first read waits for all of it.
    if (ops.key_norms) read(key_norms_, heads, stride);
    if (ops.value_norms) read(value_norms_, heads, stride);
    if (needs(KEEL_NEED_KEY_SUM)) read(key_sum_, heads, s.head_dim);
    if (ops.key_anchor) read(key_anchor_, heads, stride);
    if (needs(KEEL_NEED_WINDOW_SCORES)) {
        const int64_t rows =
            setup_.needs().reduce_group == KEEL_REDUCE_NONE ? int64_t{layers} * s.heads : heads;
        if (queries_ > 0) {
            read(scores_, rows, stride);
        } else { // the newest tokens have gone: nobody asks for any slot
            scores_.host.assign(static_cast<size_t>(rows * stride), 0.0F);
        }
    }
    if (needs(KEEL_NEED_RUNNING_SCORES | KEEL_NEED_REPLAY)) read(scores_, heads, stride);
    if (needs(KEEL_NEED_CHUNK_SCORES)) read(chunk_scores_, heads, stride);
    if (!needs(KEEL_NEED_QUERY_STATS)) return;
    const auto read_rows = [&](const Tensor &all, Array &array, int64_t columns) {
        const int64_t rows = int64_t{layers} * s.heads;
        array.host.resize(static_cast<size_t>(rows * columns));
        all.rows(0, rows).read(array.host.data());
    };
    read_rows(stats_->sum(), query_sum_, s.head_dim);
    read_rows(stats_->second(), query_second_, int64_t{s.head_dim} * s.head_dim);
}

// Keys take more memory than anything else here: one layer's at a time.
const float *PolicyInputs::read_keys(PlannedOp *op, const KvCache &cache, uint32_t layer,
                                     int64_t columns, const Tensor &matrix, Array &array) {
    const int64_t heads = setup_.shape().kv_heads;
    const Tensor flat = room(array, heads, stride_ * columns),
                 out = flat.reshape({heads, stride_, columns});
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
    args.end = stride_;
    setup_.executor().run(*op, args);
    read(array, heads, stride_ * columns);
    return array.host.data();
}

void PolicyInputs::fill(const KvCache &cache, uint32_t layer, keel_policy_input &input) {
    const KvShape &s = setup_.shape();
    const InputOps &ops = setup_.inputs();
    const auto at = [&](const Array &array, int64_t rows, int64_t columns) {
        return array.host.data() + static_cast<size_t>(layer) * static_cast<size_t>(rows * columns);
    };
    const int64_t heads = s.kv_heads, dim = s.head_dim;
    if (needs(KEEL_NEED_KEY_NORMS)) input.key_norms = at(key_norms_, heads, stride_);
    if (needs(KEEL_NEED_VALUE_NORMS)) input.value_norms = at(value_norms_, heads, stride_);
    if (needs(KEEL_NEED_KEY_SUM)) input.key_sum = at(key_sum_, heads, dim);
    if (needs(KEEL_NEED_KEY_ANCHOR)) input.key_anchor = at(key_anchor_, heads, stride_);
    if (needs(KEEL_NEED_WINDOW_SCORES)) {
        const bool per_query_head = setup_.needs().reduce_group == KEEL_REDUCE_NONE;
        input.scores = at(scores_, per_query_head ? int64_t{s.heads} : heads, stride_);
        input.query_count = queries_;
    }
    if (needs(KEEL_NEED_RUNNING_SCORES | KEEL_NEED_REPLAY)) {
        input.scores = at(scores_, heads, stride_);
        input.query_count = seen_;
    }
    if (needs(KEEL_NEED_CHUNK_SCORES)) input.chunk_scores = at(chunk_scores_, heads, stride_);
    if (needs(KEEL_NEED_QUERY_STATS)) {
        input.query_sum = at(query_sum_, s.heads, dim);
        input.query_second = at(query_second_, s.heads, dim * dim);
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

std::span<const Tensor> PolicyInputs::companions(uint32_t layer) const {
    return companions_[layer];
}

void PolicyInputs::compacted(const KvCache &cache) {
    if (running_) running_->shrunk(cache);
    if (chunks_) chunks_->shrunk(cache);
}

void PolicyInputs::release() {
    for (Array *array : {&key_norms_, &value_norms_, &scores_, &key_sum_, &key_anchor_, &query_sum_,
                         &query_second_, &chunk_scores_, &keys_, &key_project_})
        *array = {};
    repeat_scores_ = {};
    unrotation_.reset();
}

uint64_t PolicyInputs::bytes() const {
    uint64_t sum = held_bytes(repeat_scores_) + held_bytes(projection_) + held_bytes(ranges_) +
                   query_positions_.bytes();
    for (const Array *array : {&key_norms_, &value_norms_, &scores_, &key_sum_, &key_anchor_,
                               &query_sum_, &query_second_, &chunk_scores_, &keys_, &key_project_})
        sum += held_bytes(array->device) + held_bytes(array->host);
    if (ring_) sum += ring_->bytes();
    if (running_) sum += running_->bytes();
    if (chunks_) sum += chunks_->bytes();
    if (stats_) sum += stats_->bytes();
    if (unrotation_) sum += unrotation_->bytes();
    return sum;
}

uint64_t PolicyInputs::bytes(const PolicySetup &setup, int64_t context, int64_t held) {
    const KvShape &s = setup.shape();
    const Collected &g = setup.collected();
    const auto blocks = static_cast<uint64_t>((context + s.block_slots - 1) / s.block_slots);
    const uint64_t slots = blocks * s.block_slots, dim = s.head_dim;
    uint64_t collected = 0;
    if (g.window > 0) {
        collected += QueryRing::bytes(setup.executor().device().info().activation_dtype, s.layers,
                                      g.window, uint64_t{s.heads} * dim);
    }
    if (g.running) collected += SlotSums::bytes(s, slots);
    if (g.chunks) collected += SlotSums::bytes(s, slots);
    if (g.stats)
        collected += QueryStats::bytes(s, std::min(step_tokens(setup.executor(), s), context));
    if (setup.keeps_all()) return collected;
    const uint64_t rows = uint64_t{s.layers} * s.kv_heads, n = static_cast<uint64_t>(held);
    const uint64_t cells = rows * n, layer_cells = s.kv_heads * n;
    const uint64_t columns = setup.needs().projection_cols;
    uint64_t both = 0, once = 0; // numbers on the device and as read; and in one place only
    const auto add = [&](uint64_t bits, uint64_t numbers, uint64_t &to) {
        if (setup.needs(bits)) to += numbers;
    };
    const bool per_query_head = setup.needs().reduce_group == KEEL_REDUCE_NONE;
    add(KEEL_NEED_KEY_NORMS, cells, both);
    add(KEEL_NEED_VALUE_NORMS, cells, both);
    add(KEEL_NEED_KEY_ANCHOR, cells, both);
    add(KEEL_NEED_KEY_SUM | KEEL_NEED_KEY_ANCHOR, rows * dim, both);
    add(KEEL_NEED_WINDOW_SCORES, per_query_head ? cells / s.kv_heads * s.heads : cells, both);
    add(KEEL_NEED_RUNNING_SCORES, cells, both);
    add(KEEL_NEED_CHUNK_SCORES, cells, both);
    add(KEEL_NEED_REPLAY, cells, both);
    add(KEEL_NEED_KEYS, layer_cells * dim, both);
    add(KEEL_NEED_KEY_PROJECT, layer_cells * columns, both);
    add(KEEL_NEED_KEY_PROJECT, dim * columns, once);
    add(KEEL_NEED_UNROTATED, n * setup.geometry().rot + s.kv_heads * slots, once);
    add(KEEL_NEED_REPLAY, rows * slots, once);
    add(KEEL_NEED_QUERY_STATS, uint64_t{s.layers} * s.heads * (dim + dim * dim), once);
    return collected + (2 * both + once) * sizeof(float);
}

const Tensor &PolicyInputs::repeat_scores() {
    const KvShape &s = setup_.shape();
    const int64_t rows = int64_t{s.layers} * s.kv_heads,
                  slots = s.blocks_per_head() * s.block_slots;
    if (repeat_scores_.empty())
        repeat_scores_ =
            Tensor::allocate(setup_.executor().device(), KEEL_DTYPE_F32, {rows, slots}, placement_);
    repeat_scores_.write(std::vector<float>(static_cast<size_t>(rows * slots)).data());
    return repeat_scores_;
}

} // namespace keel
