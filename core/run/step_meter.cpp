#include "run/step_meter.hpp"

#include <algorithm>

namespace keel {

StepMeter::Span::Span(StepMeter &meter, bool is_decode)
    : meter_(meter), is_decode_(is_decode), start_(std::chrono::steady_clock::now()),
      before_(meter.pipeline_.engines().counters()) {}

StepMeter::Span::~Span() {
    SessionStats &stats = meter_.stats_;
    const Stream::Counters used = meter_.pipeline_.engines().counters() - before_;
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    stats.stream += used;
    (is_decode_ ? stats.decode_seconds : stats.prefill_seconds) += seconds;
    if (is_decode_) stats.decode_stream += used;
}

void StepMeter::count_decode(double seconds) {
    stats_.decode_seconds += seconds;
    ++stats_.decode_tokens;
}

void StepMeter::count_prefill(uint64_t tokens, double seconds) {
    stats_.prefill_seconds += seconds;
    stats_.prefill_tokens += tokens;
}

const SessionStats &StepMeter::read(const SequenceCache &cache) {
    stats_.evictions = cache.acting().evictions();
    stats_.evicted_tokens = cache.acting().evicted_slots();
    stats_.evicted_bytes = stats_.policy_bytes = stats_.policy_peak_bytes = 0;
    stats_.freed_bytes = 0;
    stats_.eviction_seconds = 0;
    uint64_t peak = 0;
    stats_.replay_parts = 0;
    stats_.no_replay.clear();
    for (const Stage &stage : cache.stages()) {
        if (stage.engine->executor->can_record()) {
            ++stats_.replay_parts;
            if (stats_.no_replay.empty())
                stats_.no_replay = stage.engine->graph->why_not_recorded();
        }
        stats_.eviction_seconds += stage.cache->eviction_us() / 1e6;
        stats_.policy_bytes += stage.cache->policy_bytes();
        stats_.policy_peak_bytes += stage.cache->policy_peak_bytes();
        stats_.evicted_bytes += stage.cache->evicted_bytes();
        stats_.freed_bytes += stage.cache->freed_bytes();
        peak += stage.cache->caches().peak_bytes();
    }
    stats_.kv_bytes = cache.bytes_in_use();
    stats_.kv_peak_bytes = std::max(stats_.kv_peak_bytes, peak);
    stats_.held_peak_bytes = std::max(stats_.held_peak_bytes, cache.held_peak_bytes());
    return stats_;
}

} // namespace keel
