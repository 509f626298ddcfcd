#include "run/ahead_step.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "device/trace.hpp"

namespace keel {

bool AheadStep::may_run() const {
    const std::vector<Stage> &stages = sequence_.cache.stages();
    if (stages.size() != 1 || has_failed_) return false;
    const StepResults &results = sequence_.results;
    const Graph &graph = *stages.front().engine->graph;
    // A step of another sequence can overwrite the token that this argmax found.
    if (results.has_pending_read() && graph.next().results_version() != results_version_)
        return false;
    return stages.front().engine == results.holder() && results.first_row() == 0 &&
           results.rows() == 1 && graph.can_run_ahead() && stages.front().cache->can_append_ahead();
}

int32_t AheadStep::read_token(bool may_queue) {
    StepResults &results = sequence_.results;
    NextToken &next = results.holder()->graph->next();
    const bool ahead = may_queue && may_run();
    if (!results.has_pending_read()) {
        next.queue_argmax();
        results_version_ = next.results_version();
        // start_reading() returns an empty read if the backend cannot have more unfinished reads.
        if (ahead) results.set_pending_read(next.start_reading());
    }
    int32_t id = -1;
    if (!results.has_pending_read()) {
        next.ids().read(&id);
        return id;
    }
    if (ahead) {
        // finish_step() evicts nothing here, see may_run()
        sequence_.cache.finish_step();
        // submits now, so that the read of the token does not wait for the next step
        results.holder()->executor->stream().flush();
        queue();
    }
    LaterRead read = results.take_pending_read();
    read.finish(&id);
    return id;
}

// Queues a step, and then an argmax over the logits of this step. The token of the step is the
// token that an earlier argmax finds.
void AheadStep::queue() {
    const Stage &stage = sequence_.cache.stages().front();
    Stream &stream = stage.engine->executor->stream();
    const TraceSpan span(stream.trace(), "decode ahead", "step");
    bool has_slot = false;
    try {
        stage.cache->append_ahead();
        has_slot = true;
        sequence_.results.set_overwritten(true);
        Graph &graph = *stage.engine->graph;
        // The step has no ids, so it uses the token that argmax writes.
        graph.forward({.positions = stage.cache->next_positions(1),
                       .kv = stage.cache->caches().views(),
                       .logit_rows = 1});
        graph.next().queue_argmax();
        results_version_ = graph.next().results_version();
        queued_ = graph.next().start_reading();
        stream.flush();
        if (queued_) return;
    } catch (const Error &error) {
        if (stage.engine->is_lost()) throw;
        log().debug("from now on, no step is queued before its token is read: {}", error.what());
    }
    // An error here is not reported. If its cause persists, the next ordinary step fails too and
    // reports the error.
    has_failed_ = true;
    queued_.drop();
    if (has_slot) stage.cache->drop_ahead();
}

bool AheadStep::take(int32_t id) {
    if (!queued_ || sequence_.results.next_token() != id) return false;
    sequence_.take_ahead(id);
    StepResults &results = sequence_.results;
    results.set_pending_read(std::move(queued_));
    // Another sequence can have run a step after the argmax was queued.
    results.set_overwritten(results.holder()->graph->next().results_version() != results_version_);
    sequence_.meter.count_ahead();
    return true;
}

void AheadStep::drop() {
    if (!queued_) return;
    queued_.drop();
    sequence_.meter.count_discarded();
    try {
        sequence_.cache.first().drop_ahead();
    } catch (const Error &) {
        // If the device is lost, the next step reports it. The cache's counts are correct.
        if (!sequence_.cache.first_engine().is_lost()) throw;
    }
}

void AheadStep::reset() {
    queued_.drop();
    has_failed_ = false;
}

} // namespace keel
