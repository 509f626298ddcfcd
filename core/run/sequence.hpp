#pragma once

#include "run/sequence_cache.hpp"
#include "run/sequence_text.hpp"
#include "run/step.hpp"
#include "run/step_meter.hpp"
#include "run/step_results.hpp"

#include <span>

namespace keel {

// The state of one sequence on a pipeline. Each member keeps its own data consistent; the functions
// change several members together.
struct Sequence {
    explicit Sequence(Pipeline &p) : pipeline(p), text(p.context()), cache(p), meter(p) {}
    Sequence(const Sequence &) = delete;
    Sequence &operator=(const Sequence &) = delete;

    Pipeline &pipeline;
    SequenceText text;
    SequenceCache cache;
    SequenceRows step; // the last step
    StepResults results;
    StepMeter meter;
    bool is_broken = false; // see Session::is_broken

    // Prepares a step that takes these tokens in: makes their slots and adds them to the text. The
    // forward pass has to follow. May evict to make room. If there is still no room it throws, and
    // only evictions have changed the sequence.
    void take_in(std::span<const int32_t> ids, StepKind kind, uint32_t logit_rows);
    // The step that was queued ahead (CacheManager::append_ahead) becomes the step of this token.
    void take_ahead(int32_t id);
    // The last step and its results do not exist any more.
    void forget_step();
};

} // namespace keel
