#include "kv/evict/kv_trace.hpp"

#include <algorithm>

namespace keel {

void trace_cache(Trace *trace, const KvCache &cache, int64_t tokens, uint64_t bytes) {
    if (trace == nullptr) return;
    trace->counter("KV bytes", static_cast<double>(bytes));
    trace->counter("tokens seen", static_cast<double>(tokens));
    trace->counter("slots of the longest head", static_cast<double>(cache.max_length()));
}

void trace_eviction(Trace *trace, std::span<const EvictionRecord> records) {
    if (trace == nullptr || records.empty()) return;
    double microseconds = 0;
    uint64_t freed = 0;
    int64_t held = 0, kept = records.front().kept_min, most = 0;
    for (const EvictionRecord &r : records) {
        microseconds += r.microseconds;
        freed += r.freed_bytes;
        held = std::max(held, r.held_max);
        kept = std::min(kept, r.kept_min);
        most = std::max(most, r.kept_max);
    }
    const double end = trace->now();
    trace->span("eviction", "cache", end - microseconds, end,
                {{"trigger", Trace::text(trigger_name(records.front().trigger))},
                 {"tokens", std::to_string(records.front().tokens)},
                 {"layers", std::to_string(records.size())},
                 {"held", std::to_string(held)},
                 {"kept_min", std::to_string(kept)},
                 {"kept_max", std::to_string(most)},
                 {"freed_bytes", std::to_string(freed)}});
}

} // namespace keel
