#include "kv/evict/eviction_totals.hpp"

#include <algorithm>
#include <cmath>

namespace keel {

void EvictionTotals::add(std::span<const EvictionRecord> records) {
    ++evictions;
    int64_t most = 0;
    for (const EvictionRecord &record : records) {
        most = std::max(most, record.evicted_max);
        evicted_bytes += record.freed_bytes;
    }
    evicted_slots += static_cast<uint64_t>(most);
}

void EvictionTotals::save(StateWriter &out) const {
    out.put(evictions);
    out.put(evicted_slots);
    out.put(evicted_bytes);
    out.put(microseconds);
}

void EvictionTotals::load(StateReader &in) {
    evictions = in.get<uint64_t>("evictions");
    evicted_slots = in.get<uint64_t>("evicted tokens");
    evicted_bytes = in.get<uint64_t>("evicted bytes");
    microseconds = in.get<double>("microseconds of evictions");
    if (!(microseconds >= 0) || !std::isfinite(microseconds))
        in.fail("microseconds of evictions: expected a finite number of 0 or more, found {}",
                microseconds);
}

} // namespace keel
