#include "kv/evict/eviction.hpp"

#include "base/error.hpp"
#include "kv/evict/kv_trace.hpp"

#include <algorithm>

namespace keel {
namespace {

double microseconds_since(std::chrono::steady_clock::time_point begin) {
    const auto passed = std::chrono::steady_clock::now() - begin;
    return std::chrono::duration<double, std::micro>(passed).count();
}

// Before the compaction, all heads of a layer have the `tail` newest tokens. Returns the number of
// the newest tokens that all these heads still have after the compaction.
int64_t tail_after(const KvCache &cache, uint32_t layer, const KeepLists &keep, int64_t tail) {
    for (uint32_t h = 0; h < keep.size(); ++h) {
        const int64_t length = cache.length(layer, h), kept = std::ssize(keep[h]);
        int64_t run = 0;
        while (run < kept && run < tail &&
               keep[h][static_cast<size_t>(kept - 1 - run)] == length - 1 - run)
            ++run;
        tail = std::min(tail, run);
    }
    return tail;
}

// Counts the effects of a compaction on the heads of a layer.
void count_slots(EvictionRecord &record, const KvCache &cache, const KeepLists &keep) {
    record.kept_min = shortest(keep);
    for (uint32_t h = 0; h < keep.size(); ++h) {
        const int64_t kept = std::ssize(keep[h]), gone = cache.length(record.layer, h) - kept;
        record.kept_max = std::max(record.kept_max, kept);
        record.evicted += gone;
        record.evicted_max = std::max(record.evicted_max, gone);
    }
}

} // namespace

Eviction::Eviction(PolicySetup &setup, uint64_t seed)
    : setup_(setup), shares_(setup), keep_(setup.shape().layers) {
    reseed(seed);
    records_.reserve(setup.shape().layers);
}

void Eviction::reseed(uint64_t seed) {
    keel_policy_needs needs;
    policy_ = std::make_unique<PolicyState>(setup_.config().policy, setup_.host()->table(),
                                            setup_.geometry(), seed, needs);
}

void Eviction::take_over(Eviction &other) {
    policy_ = std::move(other.policy_);
    shares_.take_over(other.shares_);
}

uint64_t Eviction::bytes() const {
    uint64_t sum = 0;
    for (const LayerDecision &decision : decisions_) sum += decision.bytes();
    for (const KeepLists &layer : keep_) {
        for (const auto &head : layer) sum += held_bytes(head);
    }
    return sum;
}

void Eviction::release() {
    decisions_.clear();
    for (KeepLists &layer : keep_) layer.clear();
}

uint64_t Eviction::bytes(const PolicySetup &setup, int64_t held) {
    const KvShape &s = setup.shape();
    const uint64_t layers = setup.allocator().by_scores ? s.layers : 1;
    const uint64_t cells = s.kv_heads * static_cast<uint64_t>(held);
    return layers * LayerDecision::bytes(setup, cells) + s.layers * cells * sizeof(int32_t);
}

bool Eviction::run(const Firing &firing, const Sequence &sequence) {
    auto began = Clock::now();
    records_.clear();
    by_rule_ = needs_rule(firing, sequence);
    // The scores of the key rule of different heads cannot be compared, so the allocator gets no
    // scores.
    by_scores_ = setup_.allocator().by_scores && !by_rule_;
    // An allocator that uses scores divides the budget after the scores are computed.
    if (setup_.allocator().by_scores) {
        shares_.share_evenly(firing.target);
    } else {
        shares_.share(firing.target, sequence.cache, sequence.tokens);
    }
    if (!has_excess(firing, sequence.cache)) return false;
    // Reading the inputs waits for the stream. This wait belongs to the step, not to the eviction.
    // So the code waits before it starts to measure the eviction.
    if (PolicyInputs::reads(by_rule_ ? key_rule_needs : setup_.needs().needs)) {
        const auto waits = Clock::now();
        setup_.executor().stream().wait();
        began += Clock::now() - waits;
    }
    sequence.cache.refresh();
    const int64_t stride = sequence.cache.max_length();
    if (!by_rule_ && setup_.needs(KEEL_NEED_REPLAY) && !sequence.repeat_context()) {
        sequence.totals.microseconds += microseconds_since(began);
        return false;
    }
    decide(firing, sequence, stride);
    compact(firing, sequence);
    const double all = microseconds_since(began);
    sequence.totals.microseconds += all;
    if (!records_.empty()) record(all, sequence);
    return true;
}

// Returns true if the rule of key_rule.hpp must decide because the policy's inputs are not
// available. Memory pressure can occur at any time. Then there is no memory to repeat the context,
// decoded tokens have no chunk_scores, and the last queries can be freed.
bool Eviction::needs_rule(const Firing &firing, const Sequence &sequence) const {
    if (firing.trigger != KEEL_TRIGGER_PRESSURE || !setup_.may_use_key_rule()) return false;
    if (setup_.needs(KEEL_NEED_REPLAY)) return true;
    if (setup_.needs(KEEL_NEED_CHUNK_SCORES)) return !firing.ends_prompt;
    return !sequence.inputs.has_queries(sequence.cache, sequence.tail);
}

// Returns true if there is a reason to evict. The usual reason: all heads together hold more slots
// than the budget. If a step needs room, one head above its share is enough.
bool Eviction::has_excess(const Firing &firing, const KvCache &cache) const {
    if (firing.trigger == KEEL_TRIGGER_INSERT && !setup_.allocator().by_scores)
        return shares_.any_above(cache);
    return cache.total_length() > firing.target * static_cast<int64_t>(cache.rows());
}

LayerDecision &Eviction::decision(uint32_t layer) {
    return decisions_[decisions_.size() == 1 ? 0 : layer];
}

// Asks the policy about a layer. Returns the duration in microseconds.
double Eviction::ask(uint32_t layer, const Firing &firing, const Sequence &sequence,
                     int64_t stride) {
    const auto begin = Clock::now();
    const LayerDecision::Question question = {firing.trigger, layer, sequence.seen, stride,
                                              shares_.of_layer(layer)};
    decision(layer).ask(question, sequence.cache, sequence.tokens, sequence.inputs,
                        by_rule_ ? nullptr : policy_.get());
    return microseconds_since(begin);
}

// Makes a record with the fields that are equal for all layers.
EvictionRecord Eviction::first_record(const Firing &firing, const Sequence &sequence) const {
    EvictionRecord common;
    common.sequence = sequence.stamp.number;
    common.tokens = sequence.seen;
    common.seconds = std::chrono::duration<double>(Clock::now() - sequence.stamp.start).count();
    common.when = std::chrono::system_clock::now();
    common.budget = firing.target;
    common.pressure = sequence.clock.pressure();
    common.trigger = firing.trigger;
    common.heads = setup_.shape().kv_heads;
    if (by_rule_) common.rule = key_rule_name;
    return common;
}

// Makes the keep-list and the record of a layer after the policy's decision.
void Eviction::read_layer(uint32_t layer, const EvictionRecord &common) {
    const auto begin = Clock::now();
    records_.push_back(common);
    decision(layer).read(shares_.of_layer(layer), keep_[layer], records_.back());
    records_.back().microseconds = asked_microseconds_[layer] + microseconds_since(begin);
    records_.back().layer = layer;
}

// Makes the keep-lists and records of all layers.
void Eviction::decide(const Firing &firing, const Sequence &sequence, int64_t stride) {
    const uint32_t layers = setup_.shape().layers;
    // A policy with granularity TOKEN is asked once for all layers.
    const uint32_t asked = setup_.needs().granularity == KEEL_KEEP_TOKEN ? 1 : layers;
    sequence.inputs.begin_eviction(sequence.cache,
                                   {by_rule_ ? key_rule_needs : setup_.needs().needs, asked, stride,
                                    sequence.tail, sequence.seen});
    const EvictionRecord common = first_record(firing, sequence);
    decisions_.resize(by_scores_ ? layers : 1, LayerDecision(setup_));
    asked_microseconds_.assign(layers, 0);
    const uint32_t together = sequence.inputs.layers_at_a_time();
    for (uint32_t first = 0; first < asked; first += together) {
        const uint32_t n = std::min(together, asked - first);
        sequence.inputs.compute(sequence.cache, first, n);
        for (uint32_t l = first; l < first + n; ++l) {
            asked_microseconds_[l] = ask(l, firing, sequence, stride);
            if (!by_scores_) read_layer(l, common);
        }
    }
    if (by_scores_) {
        shares_.share_by_scores(firing.target, sequence.cache, sequence.tokens, decisions_);
        for (uint32_t l = 0; l < layers; ++l) read_layer(l, common);
    }
    for (uint32_t l = asked; l < layers; ++l) {
        records_.push_back(records_.front());
        records_.back().microseconds = 0;
        records_.back().layer = l;
        keep_[l] = keep_[0];
    }
    for (EvictionRecord &record : records_)
        record.held_max = sequence.cache.max_length(record.layer);
}

// Compacts the cache to the slots in keep_, then rotates keys to their new positions. Completes the
// records. Drops the records of layers that kept all slots.
void Eviction::compact(const Firing &firing, const Sequence &sequence) {
    KvCache &cache = sequence.cache;
    Rerotation *rerotation = sequence.rerotation;
    // Blocks that are shared with a fork must be copied. If kv.max_mib has no room for the copies,
    // nothing is moved.
    std::string why;
    if (!cache.can_compact(keep_, &why)) throw_error(ErrorKind::resource, "{}", why);
    if (rerotation != nullptr && !rerotation->can_hold(cache, keep_, &why))
        throw_error(ErrorKind::resource, "{}", why);
    for (EvictionRecord &record : records_) {
        const auto begin = Clock::now();
        const KeepLists &keep = keep_[record.layer];
        sequence.tail = tail_after(cache, record.layer, keep, sequence.tail);
        sequence.tokens.record_compact(record.layer, keep);
        if (rerotation != nullptr) rerotation->record_compact(record.layer, keep);
        count_slots(record, cache, keep);
        record.freed_bytes = cache.compact(record.layer, keep, *setup_.gather(),
                                           sequence.inputs.companions(record.layer));
        record.microseconds += microseconds_since(begin);
    }
    cache.publish();
    sequence.inputs.compacted(cache);
    const int64_t coming = sequence.clock.tokens_to_come(firing.trigger, cache, sequence.seen);
    for (EvictionRecord &record : records_) {
        if (rerotation == nullptr) break;
        if (!rerotation->is_due(cache, record.layer, sequence.seen, coming)) continue;
        const auto begin = Clock::now();
        record.moved_keys = rerotation->close(cache, record.layer);
        record.microseconds += microseconds_since(begin);
    }
    std::erase_if(records_, [](const EvictionRecord &r) { return r.evicted == 0; });
}

// Counts the evicted slots, and writes the log. `microseconds` is the time of the whole eviction.
// Time that was spent for all layers together is divided among the layers.
void Eviction::record(double microseconds, const Sequence &sequence) {
    const KvCache &cache = sequence.cache;
    double of_layers = 0;
    for (const EvictionRecord &record : records_) of_layers += record.microseconds;
    sequence.totals.add(records_);
    const double share = (microseconds - of_layers) / static_cast<double>(records_.size());
    for (EvictionRecord &record : records_) {
        record.microseconds += share;
        const uint32_t layer = record.layer;
        record.layer = setup_.config().number_of(layer); // the layer's number in the model
        if (setup_.log() == nullptr) continue;
        for (uint32_t h = 0; h < record.heads; ++h) {
            const size_t row = size_t{layer} * record.heads + h;
            record.kept.push_back(cache.row_length(row));
            if (setup_.config().log_positions)
                record.tokens_kept.push_back(token_runs(sequence.tokens.tokens(cache, row)));
        }
        setup_.log()->write(record);
    }
    trace_eviction(setup_.executor().stream().trace(), records_);
}

} // namespace keel
