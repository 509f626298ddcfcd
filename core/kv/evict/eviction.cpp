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

// How many of the `tail` newest tokens are still in all heads of a layer after its compaction.
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

// What a compaction does to the heads of a layer.
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
    return sum;
}

uint64_t Eviction::bytes(const PolicySetup &setup, int64_t held) {
    const KvShape &s = setup.shape();
    const uint64_t layers = setup.allocator().by_scores ? s.layers : 1;
    return layers * LayerDecision::bytes(setup, s.kv_heads * static_cast<uint64_t>(held));
}

bool Eviction::run(const Firing &firing, const Sequence &sequence) {
    auto began = Clock::now();
    records_.clear();
    // An allocator that weighs scores is asked when they are there.
    if (setup_.allocator().by_scores) {
        shares_.share_evenly(firing.target);
    } else {
        shares_.share(firing.target, sequence.cache, sequence.tokens);
    }
    if (!has_excess(firing, sequence.cache)) return false;
    // Reading the inputs waits for the stream in any case. What a step has still to do there is not
    // part of the eviction.
    if (sequence.inputs.reads()) {
        const auto waits = Clock::now();
        setup_.executor().stream().wait();
        began += Clock::now() - waits;
    }
    sequence.cache.refresh();
    const int64_t stride = sequence.cache.max_length();
    if (setup_.needs(KEEL_NEED_REPLAY) && !sequence.repeat_context()) {
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

// Do all heads together hold more than the budget? If not, the shares of single heads are no reason
// to evict. But if a step has to fit, a full head is a reason, whatever the others hold.
bool Eviction::has_excess(const Firing &firing, const KvCache &cache) const {
    if (firing.trigger == KEEL_TRIGGER_INSERT && !setup_.allocator().by_scores)
        return shares_.any_above(cache);
    return cache.total_length() > firing.target * static_cast<int64_t>(cache.rows());
}

LayerDecision &Eviction::decision(uint32_t layer) {
    return decisions_[decisions_.size() == 1 ? 0 : layer];
}

// Returns the microseconds that it took.
double Eviction::ask(uint32_t layer, const Firing &firing, const Sequence &sequence,
                     int64_t stride) {
    const auto begin = Clock::now();
    const LayerDecision::Question question = {firing.trigger, layer, sequence.seen, stride,
                                              shares_.of_layer(layer)};
    decision(layer).ask(question, sequence.cache, sequence.tokens, sequence.inputs, *policy_);
    return microseconds_since(begin);
}

// Makes the keep-lists and records of all layers.
void Eviction::decide(const Firing &firing, const Sequence &sequence, int64_t stride) {
    const uint32_t layers = setup_.shape().layers;
    const bool by_scores = setup_.allocator().by_scores;
    // What a policy says once holds for all layers.
    const bool once = setup_.needs().granularity == KEEL_KEEP_TOKEN;
    sequence.inputs.compute(sequence.cache, once ? 1 : layers, stride, sequence.tail,
                            sequence.seen);
    EvictionRecord common;
    common.sequence = sequence.stamp.number;
    common.tokens = sequence.seen;
    common.seconds = std::chrono::duration<double>(Clock::now() - sequence.stamp.start).count();
    common.when = std::chrono::system_clock::now();
    common.budget = firing.target;
    common.pressure = sequence.clock.pressure();
    common.trigger = firing.trigger;
    common.heads = setup_.shape().kv_heads;
    decisions_.resize(by_scores ? layers : 1, LayerDecision(setup_));
    asked_microseconds_.assign(layers, 0);
    if (by_scores) {
        for (uint32_t l = 0; l < layers; ++l)
            asked_microseconds_[l] = ask(l, firing, sequence, stride);
        shares_.share_by_scores(firing.target, sequence.cache, sequence.tokens, decisions_);
    }
    for (uint32_t l = 0; l < layers; ++l) {
        if (once && l > 0) {
            records_.push_back(records_.front());
            records_.back().microseconds = 0;
            keep_[l] = keep_[0];
        } else {
            const auto begin = Clock::now();
            records_.push_back(common);
            if (!by_scores) ask(l, firing, sequence, stride);
            decision(l).read(shares_.of_layer(l), keep_[l], records_.back());
            records_.back().microseconds = asked_microseconds_[l] + microseconds_since(begin);
        }
        records_.back().layer = l;
        records_.back().held_max = sequence.cache.max_length(l);
    }
}

// Moves the cache to keep_, then the keys' rotations. Finishes the records, and drops those of
// layers where everything stayed.
void Eviction::compact(const Firing &firing, const Sequence &sequence) {
    KvCache &cache = sequence.cache;
    Rerotation *rerotation = sequence.rerotation;
    // Blocks that are shared with a fork have to be copied. If kv.max_mib has no room for the
    // copies, nothing is moved.
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

// Counts what was evicted, and writes the log. `microseconds`: the whole eviction. What was done
// for all layers together is spread over them.
void Eviction::record(double microseconds, const Sequence &sequence) {
    const KvCache &cache = sequence.cache;
    double of_layers = 0;
    for (const EvictionRecord &record : records_) of_layers += record.microseconds;
    sequence.totals.add(records_);
    const double share = (microseconds - of_layers) / static_cast<double>(records_.size());
    for (EvictionRecord &record : records_) {
        record.microseconds += share;
        const uint32_t layer = record.layer;
        record.layer = setup_.config().number_of(layer); // as the model counts them
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
