#pragma once

#include "run/sequence_cache.hpp"
#include "run/sequence_text.hpp"
#include "run/step.hpp"
#include "run/step_meter.hpp"
#include "run/step_results.hpp"

#include <span>

namespace keel {

// The state of one sequence on a pipeline. Each member keeps its own data consistent; the functions
// of this struct change several members together.
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

    // Prepares a step with these tokens: makes their slots and adds the tokens to the text. The
    // caller must then queue the forward pass. May evict to make room. If there is still no room,
    // throws an error. In this case only evictions have changed the sequence.
    void take_in(std::span<const int32_t> ids, StepKind kind, uint32_t logit_rows);
    // Makes the step that was queued ahead (CacheManager::append_ahead) the last step, with the
    // token `id`.
    void take_ahead(int32_t id);
    // Call it if the last step and its results are no longer valid.
    void forget_step();
};

} // namespace keel
