// Greedy decode steps that are queued before their token is read: argmax puts it where the next
// step takes its tokens from.
#include "run/session.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "device/trace.hpp"

namespace keel {

// Between the two steps nothing may be asked of the host: neither the policy, nor a hybrid's other
// backends, nor memory for the cache.
bool Session::may_run_ahead() const {
    if (parts_.size() != 1 || ahead_failed_ || !stays()) return false;
    const Part &part = parts_.front();
    // What argmax found lies where other sequences' steps put theirs.
    if (coming_ && part.engine->graph->next().results_version() != results_version_) return false;
    return part.engine == results_ && first_row_ == 0 && rows_ == 1 &&
           part.engine->graph->can_run_ahead() && part.cache->can_append_ahead();
}

int32_t Session::read_greedy(bool go_on) {
    if (overwritten_ && !coming_) take_step_again();
    NextToken &next = results_->graph->next();
    const bool ahead = go_on && may_run_ahead();
    if (!coming_) {
        next.queue_argmax();
        results_version_ = next.results_version();
        if (ahead)
            coming_ = next.start_reading(); // empty: as many as the backend takes are under way
    }
    int32_t id = -1;
    if (coming_) {
        if (ahead) {
            settle_step();                        // decides nothing, see may_run_ahead
            results_->executor->stream().flush(); // the token need not wait for what comes now
            run_ahead();
        }
        LaterRead read = std::move(coming_);
        read.finish(&id);
    } else {
        next.ids().read(&id);
    }
    if (id < 0) { // no token: a logit was not finite
        drop_ahead();
        find_non_finite();
    }
    settle_step();
    return id;
}

// Queues the step that takes in what argmax finds, and what argmax finds behind it. Nothing that
// counts tokens hears of it yet.
void Session::run_ahead() {
    const Part &part = parts_.front();
    Stream &stream = part.engine->executor->stream();
    const TraceSpan span(stream.trace(), "decode ahead", "step");
    bool is_there = false; // the slot
    try {
        part.cache->append_ahead();
        is_there = overwritten_ = true;
        Graph &graph = *part.engine->graph;
        graph.forward({.positions = part.cache->next_positions(1),
                       .kv = part.cache->cache().views(),
                       .logit_rows = 1}); // of the token that argmax finds
        graph.next().queue_argmax();
        results_version_ = graph.next().results_version();
        ahead_ = graph.next().start_reading();
        stream.flush();
        if (ahead_) return;
    } catch (const Error &error) {
        if (part.engine->is_lost()) throw;
        log().debug("no step is queued before its token is read any more: {}", error.what());
    }
    // The step that is taken when the token is known says what is wrong, if anything is.
    ahead_failed_ = true;
    ahead_.drop();
    if (is_there) part.cache->drop_ahead();
}

// If the step that is ahead is the one with this token it is the session's now.
bool Session::take_ahead(int32_t id) {
    if (!ahead_ || said_ != id) return false;
    CacheManager &manager = *parts_.front().cache;
    const std::span<const int32_t> positions = manager.next_positions(1);
    step_positions_.assign(positions.begin(), positions.end());
    step_ids_.assign(1, id);
    manager.keep_ahead();
    taps_.assign(1, nullptr);
    step_caches_.assign(1, &manager.cache());
    begin_results(step_ids_, StepKind::decode, 1);
    coming_ = std::move(ahead_);
    overwritten_ = results_->graph->next().results_version() !=
                   results_version_; // by another sequence meanwhile
    ++stats_.ahead_steps;
    return true;
}

void Session::drop_ahead() {
    if (!ahead_) return;
    ahead_.drop();
    ++stats_.vain_steps;
    try {
        parts_.front().cache->drop_ahead();
    } catch (const Error &) {
        if (!engine().is_lost()) throw; // else the next step says so; the books are right
    }
}

// Steps and results of a device that is gone, or of a sequence that was forgotten.
void Session::forget_ahead() {
    ahead_.drop();
    coming_.drop();
    overwritten_ = false;
}

// The last step once more, for its logits: its slots are written with the same values. The sequence
// may have moved since.
void Session::take_step_again() {
    drop_ahead();
    coming_.drop();
    results_ = parts_.back().engine;
    forward(step_ids_, step_positions_, caches(), rows_, {});
    overwritten_ = false;
}

// Of a step that another begins to follow: once that one may evict, nothing can compute them again.
void Session::forget_overwritten() {
    if (!overwritten_ || logits_read_) return;
    coming_.drop();
    overwritten_ = false;
    logits_.clear();
    rows_ = 0;
    logits_read_ = true;
}

} // namespace keel
