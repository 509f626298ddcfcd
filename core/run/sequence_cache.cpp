#include "run/sequence_cache.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace keel {

void SequenceCache::add(Engine &engine, PolicySetup &plan) {
    stages_.push_back({&engine, std::make_unique<CacheManager>(plan, engine.placement())});
    attach_forward();
}

CacheManager &SequenceCache::acting() const {
    for (const Stage &stage : stages_)
        if (!stage.cache->setup().keeps_all()) return *stage.cache;
    return first();
}

void SequenceCache::assign(std::vector<Stage> stages) {
    stages_ = std::move(stages);
    attach_forward();
}

std::unique_ptr<CacheManager> SequenceCache::replace(Engine &engine,
                                                     std::unique_ptr<CacheManager> cache) {
    Stage &stage = stages_.front();
    stage.engine = &engine;
    std::swap(stage.cache, cache);
    attach_forward();
    return cache;
}

void SequenceCache::set_forward(SequenceForward *forward) {
    forward_ = forward;
    attach_forward();
}

void SequenceCache::attach_forward() {
    if (forward_ != nullptr) first().set_forward(forward_);
}

bool SequenceCache::can_take(int64_t n, bool prompt, std::string *why) const {
    return std::all_of(stages_.begin(), stages_.end(),
                       [&](const Stage &stage) { return stage.cache->can_take(n, prompt, why); });
}

int64_t SequenceCache::next_chunk(int64_t left) const {
    int64_t n = left;
    for (const Stage &stage : stages_) n = std::min<int64_t>(n, stage.engine->graph->max_tokens());
    for (const Stage &stage : stages_) n = std::min(n, stage.cache->next_chunk(left, n));
    return n;
}

void SequenceCache::make_room(int64_t n, StepKind kind) {
    for (const Stage &stage : stages_) stage.cache->before_append(n, kind);
}

void SequenceCache::append(SequenceRows &step, StepKind kind) {
    const auto n = static_cast<int64_t>(step.ids.size());
    const std::span<const int32_t> positions = first().next_positions(n);
    step.positions.assign(positions.begin(), positions.end());
    step.stages.clear();
    for (const Stage &stage : stages_) {
        stage.cache->append(n);
        StageStep of_stage{stage.engine, &stage.cache->caches()};
        of_stage.tap = stage.cache->begin_step(n, kind);
        if (of_stage.tap != nullptr)
            of_stage.tap_ops = &pipeline_.policies().taps(stage.cache->setup());
        step.stages.push_back(of_stage);
    }
    open_step_ = kind;
}

void SequenceCache::keep_ahead(SequenceRows &step) {
    const std::span<const int32_t> positions = first().next_positions(1);
    step.positions.assign(positions.begin(), positions.end());
    first().keep_ahead();
    find_stages(step);
    open_step_ = StepKind::decode;
}

void SequenceCache::find_stages(SequenceRows &step) const {
    step.stages.clear();
    for (const Stage &stage : stages_)
        step.stages.push_back({stage.engine, &stage.cache->caches()});
}

void SequenceCache::finish_step() {
    if (!open_step_) return;
    const StepKind kind = *open_step_;
    open_step_.reset();
    for (const Stage &stage : stages_) {
        stage.cache->after_step(kind);
        stage.engine->executor->stream().end_of_step();
    }
}

void SequenceCache::end_prompt() {
    for (const Stage &stage : stages_) stage.cache->after_step(StepKind::prefill_end);
}

bool SequenceCache::can_truncate(int64_t n, std::string *why) const {
    return std::all_of(stages_.begin(), stages_.end(),
                       [&](const Stage &stage) { return stage.cache->can_truncate(n, why); });
}

void SequenceCache::truncate(int64_t n) {
    for (const Stage &stage : stages_) stage.cache->truncate(n);
}

void SequenceCache::reset() {
    for (const Stage &stage : stages_) stage.cache->reset();
}

void SequenceCache::pin(int64_t from, int64_t to, std::string_view what) {
    for (const Stage &stage : stages_) stage.cache->pin(from, to, what);
}

void SequenceCache::unpin(int64_t from) {
    for (const Stage &stage : stages_) stage.cache->unpin(from);
}

void SequenceCache::protect_prefix(int64_t tokens, std::string_view what) {
    for (const Stage &stage : stages_) stage.cache->protect_prefix(tokens, what);
}

uint64_t SequenceCache::bytes_in_use() const {
    uint64_t bytes = 0;
    for (const Stage &stage : stages_) bytes += stage.cache->bytes_in_use();
    return bytes;
}

uint64_t SequenceCache::policy_bytes() const {
    uint64_t bytes = 0;
    for (const Stage &stage : stages_) bytes += stage.cache->policy_bytes();
    return bytes;
}

uint64_t SequenceCache::held_peak_bytes() const {
    uint64_t bytes = 0;
    for (const Stage &stage : stages_) bytes += stage.cache->held_peak_bytes();
    return bytes;
}

void SequenceCache::save(StateWriter &out) const {
    for (const Stage &stage : stages_) stage.cache->save(out);
}

void SequenceCache::load(StateReader &in, int64_t tokens) {
    for (const Stage &stage : stages_) {
        stage.cache->load(in);
        if (stage.cache->tokens_seen() != tokens)
            in.fail("the cache has seen {} tokens, but the text has {}; the file is damaged",
                    stage.cache->tokens_seen(), tokens);
    }
}

std::vector<Stage> SequenceCache::fork() const {
    std::vector<Stage> copies;
    for (const Stage &stage : stages_) copies.push_back({stage.engine, stage.cache->fork()});
    return copies;
}

} // namespace keel
