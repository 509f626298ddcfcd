#pragma once

#include "device/trace.hpp"
#include "kv/evict/eviction_log.hpp"
#include "kv/store/kv_cache.hpp"

namespace keel {

// These functions write events of a cache to a trace. Without a trace they do nothing.

// Records the size of the cache now, and the number of tokens so far. `bytes`: bytes of all layers.
void trace_cache(Trace *trace, const KvCache &cache, int64_t tokens, uint64_t bytes);
// Records an eviction that has just ended, with one record for each layer. Call trace_cache() after
// this function.
void trace_eviction(Trace *trace, std::span<const EvictionRecord> records);

} // namespace keel
