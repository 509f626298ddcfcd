#pragma once

#include "device/trace.hpp"
#include "kv/evict/eviction_log.hpp"
#include "kv/store/kv_cache.hpp"

namespace keel {

// What a cache adds to a trace; nothing without one.

// How much the cache holds now, and how many tokens it has seen.
void trace_cache(Trace *trace, const KvCache &cache, int64_t tokens);
// An eviction that has just ended; one record per layer.
void trace_eviction(Trace *trace, const KvCache &cache, std::span<const EvictionRecord> records);

} // namespace keel
