#include "kv/inputs/window_scores.hpp"

#include "device/device.hpp"

#include <algorithm>

namespace keel {

QueryRing &WindowScores::ring() {
    if (ring_) return *ring_;
    const KvShape &s = setup_.shape();
    const InputOps &ops = setup_.inputs();
    Executor &ex = setup_.executor();
    const QueryRing::Ops moves = {ops.keep_queries.get(), ops.order_queries.get(),
                                  ops.place_queries.get()};
    ring_ = std::make_unique<QueryRing>(ex, moves, ex.device().info().activation_dtype, s.layers,
                                        setup_.collected().window, s.heads, s.head_dim, placement_);
    return *ring_;
}

int64_t WindowScores::rows() const {
    const KvShape &s = setup_.shape();
    return setup_.needs().reduce_group == KEEL_REDUCE_NONE ? s.heads : s.kv_heads;
}

// ---- steps --------------------------------------------------------------------------------------

bool WindowScores::begin(const KvCache &cache, const Step &step) {
    first_ = step.first;
    step_ = step.n;
    const RingUse use = setup_.ring_use();
    // the prompt can end after this step, or has ended
    const bool may_end = step.kind != StepKind::prefill_chunk;
    const bool goes_on = step.kind == StepKind::prefill_pause ||
                         (step.kind != StepKind::decode && ring_ && ring_->held() > 0);
    keeps_step_ = use == RingUse::always || (use == RingUse::after_prompt && may_end) || goes_on;
    if (!keeps_step_) ring_.reset();
    if (keeps_step_) ring().begin(step_);
    scores_step_ = step.evicts && setup_.needs(KEEL_NEED_WINDOW_SCORES) &&
                   (!keeps_step_ || ring_->held() <= std::min(step_, ring_->capacity()));
    if (!scores_step_) return keeps_step_;
    const bool once = setup_.needs().granularity == KEEL_KEEP_TOKEN;
    stride_ = cache.max_length();
    scores_.room(setup_.executor().device(), placement_,
                 rows() * (once ? 1 : int64_t{setup_.shape().layers}), stride_);
    return true;
}

const Tensor *WindowScores::place(uint32_t layer) {
    if (!keeps_step_ || step_ != 1 || !has_place()) return nullptr;
    row_ = ring_->next(layer);
    return &row_;
}

void WindowScores::take(const KvCache &cache, uint32_t layer, const Tensor &q) {
    if (keeps_step_ && (step_ > 1 || !has_place())) ring_->keep(layer, q);
    if (!scores_step_ || (layer > 0 && setup_.needs().granularity == KEEL_KEEP_TOKEN)) return;
    const int64_t n = std::min<int64_t>(step_, setup_.needs().window);
    queue_scores(cache, layer, q.rows(step_ - n, n), first_ + step_ - n,
                 scores_.rows(layer * rows(), rows()));
}

void WindowScores::queue_scores(const KvCache &cache, uint32_t layer, const Tensor &q,
                                int64_t first, const Tensor &out) {
    const keel_policy_needs &needs = setup_.needs();
    keel_scores reduction = {KEEL_HEADER(keel_scores)};
    reduction.out = out.c();
    reduction.reduce_queries = needs.reduce_queries;
    reduction.reduce_group = needs.reduce_group;
    keel_attention_scores_args args = {KEEL_HEADER(keel_attention_scores_args)};
    args.features = KEEL_SCORES_CAUSAL;
    args.q = q.c();
    args.kv = cache.view(layer);
    args.scores = &reduction;
    args.scale = setup_.geometry().attention_scale;
    const LogitRules rules = setup_.logit_rules();
    const bool by_position = rules.window > 0;
    rules.add_to(args, by_position
                           ? positions_.write(setup_.executor(), placement_, first, q.dim(0))
                           : nullptr);
    setup_.executor().run(*setup_.inputs().window_scores, args);
}

// ---- an eviction --------------------------------------------------------------------------------

int64_t WindowScores::prepare(int64_t tail, int64_t stride) {
    const int64_t window = setup_.needs().window;
    scores_step_ = scores_step_ && stride == stride_;
    if (scores_step_) return queries_ = std::min(step_, window);
    stride_ = stride;
    queries_ = 0;
    if (!ring_) return queries_;
    ring_->place_last();
    // The op computes a query's position from its distance to the end of the cache. So all heads
    // must have the query's token and all later tokens.
    return queries_ = std::min({window, ring_->held(), tail});
}

void WindowScores::queue(const KvCache &cache, uint32_t first, uint32_t layers, int64_t stride,
                         int64_t seen) {
    if (scores_step_ || queries_ == 0) return;
    const KvShape &s = setup_.shape();
    Device &device = setup_.executor().device();
    if (ordered_.empty())
        ordered_ = Tensor::allocate(device, device.info().activation_dtype,
                                    {setup_.needs().window, s.heads, s.head_dim}, placement_);
    const Tensor all = scores_.room(device, placement_, layers * rows(), stride);
    for (uint32_t l = 0; l < layers; ++l) {
        const Tensor q = ordered_.rows(0, queries_);
        ring_->gather(first + l, queries_, q);
        queue_scores(cache, first + l, q, seen - queries_, all.rows(l * rows(), rows()));
    }
}

const float *WindowScores::read(uint32_t first, uint32_t layers) {
    return scores_.read(scores_step_ ? first * rows() : 0, layers * rows());
}

void WindowScores::release() {
    scores_step_ = false;
    scores_.release();
    ordered_ = {};
}

void WindowScores::end_prompt() {
    release();
    if (setup_.ring_use() == RingUse::none) ring_.reset();
}

// ---- truncate, clear, move, copy
// -----------------------------------------------------------------

void WindowScores::drop(int64_t n) {
    scores_step_ = false;
    if (ring_) ring_->drop(n);
}

void WindowScores::clear() {
    release();
    ring_.reset();
}

void WindowScores::take_over(WindowScores &other) {
    clear();
    if (other.ring_ && other.ring_->held() > 0) ring().take_over(*other.ring_);
}

void WindowScores::save(StateWriter &out) {
    out.put(ring_ ? ring_->held() : int64_t{0});
    if (!ring_) return;
    const std::vector<std::byte> rows = ring_->read();
    out.write(rows.data(), rows.size());
}

void WindowScores::load(StateReader &in, int64_t seen) {
    clear();
    const int64_t held =
        in.get_count("last queries", 0, std::min<int64_t>(seen, setup_.collected().window));
    const auto rows = in.take(
        setup_.shape().layers * static_cast<uint64_t>(held) * ring().row_bytes(), "last queries");
    if (held > 0) ring().write({rows.begin(), rows.end()}, held);
}

uint64_t WindowScores::bytes() const {
    return (ring_ ? ring_->bytes() : 0) + scores_.bytes() + held_bytes(ordered_) +
           positions_.bytes();
}

uint64_t WindowScores::bytes(const PolicySetup &setup, int64_t held) {
    const KvShape &s = setup.shape();
    const keel_dtype dtype = setup.executor().device().info().activation_dtype;
    const uint64_t width = uint64_t{s.heads} * s.head_dim;
    uint64_t sum = 0;
    if (setup.ring_use() != RingUse::none)
        sum += QueryRing::bytes(dtype, s.layers, setup.collected().window, width);
    if (!setup.needs(KEEL_NEED_WINDOW_SCORES) || setup.keeps_all()) return sum;
    const uint64_t rows = setup.needs().reduce_group == KEEL_REDUCE_NONE ? s.heads : s.kv_heads;
    return sum + s.layers * rows * static_cast<uint64_t>(held) * sizeof(float);
}

} // namespace keel
