#pragma once

#include "device/trace.hpp"
#include "kv/evict/eviction_log.hpp"
#include "kv/store/kv_cache.hpp"

namespace keel {

// What a cache adds to a trace; nothing without one.

// How much the cache holds now (`bytes`: the bytes of all layers), and how many tokens it has seen.
void trace_cache(Trace *trace, const KvCache &cache, int64_t tokens, uint64_t bytes);
// An eviction that has just ended; one record per layer. trace_cache() has to follow.
void trace_eviction(Trace *trace, std::span<const EvictionRecord> records);

} // namespace keel
