// Part of CacheManager: the memory of a sequence in addition to its blocks, and its reaction to low
// memory of the system.
#include "kv/evict/cache_manager.hpp"

#include "device/device.hpp"

namespace keel {

uint64_t CacheManager::policy_bytes() const {
    return (inputs_ ? inputs_->bytes() : 0) + (rerotation_ ? rerotation_->work_bytes() : 0) +
           (eviction_ ? eviction_->bytes() : 0);
}

uint64_t CacheManager::policy_bytes(const PolicySetup &setup, int64_t context, int64_t held) {
    const uint64_t inputs = PolicyInputs::bytes(setup, context, held);
    if (setup.keeps_all()) return inputs;
    return inputs + Eviction::bytes(setup, held) + Rerotation::work_bytes(setup, context, held);
}

// Frees the arrays of the prompt's eviction. These arrays are as large as the cache was, and the
// next prompt can come much later. Evictions during decode keep their arrays, because the next
// eviction comes soon.
void CacheManager::end_prompt() {
    if (!inputs_) return;
    peaks_.note(bytes_in_use(), policy_bytes());
    if (eviction_) eviction_->release();
    inputs_->end_prompt(*cache_);
}

std::span<const EvictionRecord> CacheManager::answer_pressure(StepKind kind) {
    const EvictionClock::PressureAnswer answer = clock_.look_at_memory(kind, *cache_, seen_);
    const uint64_t before = held_bytes();
    std::span<const EvictionRecord> records;
    if (answer.firing) records = run(*answer.firing);
    if (answer.change == PressureWatch::Change::none) return records;
    const int64_t slots = clock_.budget(seen_).tokens;
    if (answer.change == PressureWatch::Change::looser) {
        warn_of_relief(*answer.state, slots);
        return records;
    }
    // Backend and allocator keep freed memory for later. Gives this memory back to the system.
    // First waits for the stream, because queued ops can still read from old arenas that were
    // replaced by larger arenas.
    setup_.executor().stream().wait();
    setup_.executor().device().trim();
    return_free_memory();
    warn_of_pressure(*answer.state, *setup_.config().pressure, slots,
                     std::max(before, held_bytes()) - held_bytes(), setup_.config().policy.name,
                     records.empty() ? nullptr : records.front().rule);
    return records;
}

} // namespace keel
