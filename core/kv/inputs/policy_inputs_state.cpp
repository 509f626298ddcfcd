// Part of PolicyInputs: computes the memory of the collected inputs, and truncates, copies, saves
// and loads them.
#include "kv/inputs/key_unrotation.hpp"
#include "kv/inputs/policy_inputs.hpp"

#include "base/error.hpp"
#include "device/device.hpp"

#include <algorithm>

namespace keel {

PolicyInputs::~PolicyInputs() = default;

bool PolicyInputs::can_truncate(int64_t n, int64_t seen) const {
    if (n == 0 || n == seen) return true;
    if (running_ || chunks_) return false;
    return !stats_ || n <= stats_->revocable(seen);
}

void PolicyInputs::truncate(const KvCache &cache, int64_t n, int64_t seen) {
    if (n == seen) return reset();
    if (window_) window_->drop(n);
    if (stats_) stats_->drop(n, seen);
    compacted(cache);
}

void PolicyInputs::reset() {
    if (window_) window_->clear();
    if (running_) running_->clear();
    if (chunks_) chunks_->clear();
    if (stats_) stats_->clear();
}

void PolicyInputs::copy_from(PolicyInputs &other, const KvCache &cache) {
    if (window_ && other.window_) window_->take_over(*other.window_);
    if (running_ && other.running_) running_->copy_from(*other.running_, cache);
    if (chunks_ && other.chunks_) chunks_->copy_from(*other.chunks_, cache);
    if (stats_ && other.stats_) stats_->copy_from(*other.stats_);
}

void PolicyInputs::take_over(PolicyInputs &other, const KvCache &cache) {
    if (window_ && other.window_) window_->take_over(*other.window_);
    if (running_ && other.running_) running_->copy_from(*other.running_, cache);
    if (chunks_ && other.chunks_) chunks_->copy_from(*other.chunks_, cache);
    if (stats_ && other.stats_) stats_->copy_from(*other.stats_);
}

void PolicyInputs::save(StateWriter &out, const KvCache &cache) {
    if (window_) window_->save(out);
    if (running_) running_->save(out, cache);
    if (chunks_) chunks_->save(out, cache);
    if (stats_) stats_->save(out);
}

void PolicyInputs::load(StateReader &in, const KvCache &cache, int64_t seen) {
    if (window_) window_->load(in, seen);
    if (running_) running_->load(in, cache);
    if (chunks_) chunks_->load(in, cache);
    if (stats_) stats_->load(in, seen);
}

void PolicyInputs::release() {
    for (ReadArray *array : {&key_norms_, &value_norms_, &scores_, &key_sum_, &key_anchor_,
                             &chunk_scores_, &keys_, &key_project_})
        array->release();
    for (std::vector<float> *copy : {&query_sum_, &query_second_, &no_scores_}) *copy = {};
    read_ = {};
    repeat_scores_ = projection_ = {};
    unrotation_.reset();
    if (window_) window_->release();
}

uint64_t PolicyInputs::bytes() const {
    uint64_t sum = held_bytes(repeat_scores_) + held_bytes(projection_) + held_bytes(ranges_) +
                   query_positions_.bytes();
    for (const ReadArray *array : {&key_norms_, &value_norms_, &scores_, &key_sum_, &key_anchor_,
                                   &chunk_scores_, &keys_, &key_project_})
        sum += array->bytes();
    for (const std::vector<float> *copy : {&query_sum_, &query_second_, &no_scores_})
        sum += held_bytes(*copy);
    for (const SlotSums *sums : sums_) sum += sums->bytes();
    if (window_) sum += window_->bytes();
    if (stats_) sum += stats_->bytes();
    if (unrotation_) sum += unrotation_->bytes();
    return sum;
}

uint64_t PolicyInputs::bytes(const PolicySetup &setup, int64_t context, int64_t held) {
    const KvShape &s = setup.shape();
    const Collected &g = setup.collected();
    const uint64_t dim = s.head_dim;
    const int64_t in_prompt = setup.acts_in_prefill() ? held : std::max(context, held);
    uint64_t collected = 0;
    if (g.window > 0) collected += WindowScores::bytes(setup, held);
    if (g.running) collected += SlotSums::bytes(s, in_prompt);
    if (g.chunks) collected += SlotSums::bytes(s, in_prompt);
    if (g.stats)
        collected += QueryStats::bytes(s, std::min(step_tokens(setup.executor(), s), context));
    if (setup.keeps_all()) return collected;
    const uint64_t n = static_cast<uint64_t>(held), layer_cells = s.kv_heads * n;
    const uint64_t layers = layers_at_a_time(setup, s.layers, held);
    const uint64_t rows = layers * s.kv_heads, cells = rows * n;
    const uint64_t columns = setup.needs().projection_cols;
    uint64_t needs = setup.needs().needs;
    if (setup.may_use_key_rule()) needs |= key_rule_needs;
    // read: how many numbers the host reads; once: how many other numbers there are
    uint64_t read = 0, once = 0;
    const auto add = [&](uint64_t bits, uint64_t numbers, uint64_t &to) {
        if ((needs & bits) != 0) to += numbers;
    };
    add(KEEL_NEED_KEY_NORMS, cells, read);
    add(KEEL_NEED_VALUE_NORMS, cells, read);
    add(KEEL_NEED_KEY_ANCHOR, cells, read);
    add(KEEL_NEED_KEY_SUM | KEEL_NEED_KEY_ANCHOR, rows * dim, read);
    add(KEEL_NEED_RUNNING_SCORES, cells, read);
    add(KEEL_NEED_CHUNK_SCORES, cells, read);
    add(KEEL_NEED_REPLAY, cells, read);
    add(KEEL_NEED_KEYS, layer_cells * dim, read);
    add(KEEL_NEED_KEY_PROJECT, layer_cells * columns, read);
    add(KEEL_NEED_KEY_PROJECT, dim * columns, once);
    add(KEEL_NEED_UNROTATED, n * setup.geometry().rot + layer_cells, once);
    add(KEEL_NEED_REPLAY, uint64_t{s.layers} * s.kv_heads * n, once);
    add(KEEL_NEED_QUERY_STATS, uint64_t{s.heads} * (dim + dim * dim), once);
    // Numbers that the host reads need a copy on the host, unless the device uses the host's
    // memory.
    const bool copied = setup.executor().device().device_info().type != KEEL_DEVICE_CPU;
    return collected + ((copied ? 2 : 1) * read + once) * sizeof(float);
}

} // namespace keel
