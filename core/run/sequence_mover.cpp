#include "run/sequence_mover.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "device/trace.hpp"

#include <chrono>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Runs decode steps of a dummy token on a separate cache. Returns the number of steps. The result
// is less than `tokens` if the separate cache is full or the user cancels.
int64_t warm_up(Engine &engine, int64_t tokens, HostServices &host) {
    if (tokens == 0) return 0;
    const TraceSpan span(engine.executor->stream().trace(), "warm-up", "switch");
    LayerCaches scratch(*engine.executor, engine.policy_setup->layout(), engine.placement());
    Graph &graph = *engine.graph;
    const int32_t token = 0;
    int64_t done = 0;
    while (done < tokens && scratch.fits(1) && !host.cancelled()) {
        const auto position = static_cast<int32_t>(done);
        scratch.append({&position, 1}, 1);
        graph.forward({.positions = {&position, 1},
                       .kv = scratch.views(),
                       .ids = {&token, 1},
                       .logit_rows = 1});
        graph.next().queue_argmax();
        int32_t likeliest = 0;
        graph.next().ids().read(&likeliest); // waits, as a real step does
        scratch.hold_windows();
        ++done;
    }
    return done;
}

void trace_move(Trace &trace, double begin, const BackendMove &m) {
    trace.span("switch", "switch", begin, trace.now(),
               {{"from", Trace::text(m.from)},
                {"to", Trace::text(m.to)},
                {"why", Trace::text(move_reason_name(m.why))},
                {"tokens", std::to_string(m.tokens)},
                {"bytes", std::to_string(m.bytes)}});
}

} // namespace

BackendMove SequenceMover::describe(const Engine &to, BackendMove::Why why) const {
    BackendMove m;
    m.why = why;
    m.from = current_engine().name;
    m.to = to.name;
    m.tokens = tokens();
    return m;
}

void SequenceMover::refuse(BackendMove &m, const std::string &error) {
    m.refused = error;
    log().warn("the sequence stays on backend {}, because it cannot move to {}: {}", m.from, m.to,
               error);
    sequence_.meter.add_move(m);
}

void SequenceMover::finish_step() {
    ahead_.drop();
    sequence_.cache.finish_step();
}

bool SequenceMover::move(Engine &to, BackendMove::Why why, int64_t warmup_tokens) {
    Engine &from = current_engine();
    if (&to == &from) return true;
    BackendMove m = describe(to, why);
    Trace *trace = from.executor->stream().trace();
    Clock::time_point start = Clock::now(); // start of the move, after the warm-up
    const double begin = trace != nullptr ? trace->now() : 0;
    CacheManager &old = sequence_.cache.first();
    std::unique_ptr<CacheManager> fresh;
    try {
        finish_step();
        // The cache is allocated before the warm-up. If there is no memory for the cache, the move
        // fails before the warm-up.
        fresh = old.begin_move(*to.policy_setup, to.placement());
        const Clock::time_point allocated = Clock::now();
        m.warmup_tokens = warm_up(to, warmup_tokens, sequence_.pipeline.host());
        start += Clock::now() - allocated;
    } catch (const Error &error) {
        if (from.is_lost()) throw;
        refuse(m, error.what());
        return false;
    }
    try {
        m.bytes = old.finish_move(*fresh);
    } catch (const Error &error) { // each device has only a part of the cache, so the sequence
                                   // cannot continue on either of them
        fresh.reset();
        if (from.is_lost()) throw;
        refuse(m, error.what());
        const std::optional<int32_t> pending = sequence_.text.pending();
        read_on(from, tokens());
        sequence_.text.set_pending(pending);
        return false;
    }
    sequence_.meter.read(sequence_.cache); // records the peak of the old cache
    sequence_.cache.replace(to, std::move(fresh)).reset();
    // returns the memory of the old cache to the system, because other devices can need it
    from.device().trim();
    m.milliseconds = milliseconds_since(start);
    if (trace != nullptr) trace_move(*trace, begin, m);
    // if there are no tokens, nothing was moved
    if (m.tokens > 0) sequence_.meter.add_move(std::move(m));
    return true;
}

// Computes the first `tokens` tokens again on an engine, in a new cache. The new cache gets the
// protected prefix and the pins of the old cache.
void SequenceMover::read_on(Engine &engine, int64_t tokens) {
    auto fresh = std::make_unique<CacheManager>(*engine.policy_setup, engine.placement());
    fresh->begin_like(sequence_.cache.first());
    sequence_.cache.replace(engine, std::move(fresh)).reset();
    const auto all = sequence_.text.tokens().first(static_cast<size_t>(tokens));
    read_again(std::vector<int32_t>(all.begin(), all.end()));
}

// Reads the tokens `ids` into an empty cache.
void SequenceMover::read_again(std::span<const int32_t> ids) {
    ahead_.forget();
    sequence_.forget_step();
    sequence_.text.assign({});
    Engine &engine = current_engine();
    std::string why;
    if (!sequence_.cache.first().can_take(std::ssize(ids), true, &why)) {
        throw_error(ErrorKind::resource,
                    "the {} tokens of the sequence cannot be computed again on backend {}: {}",
                    ids.size(), engine.name, why);
    }
    while (!ids.empty()) {
        const auto n = static_cast<size_t>(sequence_.cache.next_chunk(std::ssize(ids)));
        const bool is_last = n == ids.size();
        runner_.step(sequence_, ids.first(n),
                     is_last ? StepKind::prefill_end : StepKind::prefill_chunk, 0);
        finish_step();
        ids = ids.subspan(n);
    }
    engine.executor->stream().wait(); // waits, so that an error is reported here and not in a later
                                      // step
    ahead_.forget();
    sequence_.forget_step();
}

Engine &SequenceMover::reread(std::span<Engine *const> candidates, int64_t tokens,
                              const Error &why) {
    const Engine &lost = current_engine();
    const auto first = sequence_.text.tokens().first(static_cast<size_t>(tokens));
    const std::vector<int32_t> kept(first.begin(), first.end());
    BackendMove m = describe(lost, BackendMove::Why::lost);
    m.tokens = tokens;
    m.reread_tokens = tokens;
    const std::string device = lost.executor->lost_device()->device_info().name;
    std::string last;
    for (Engine *engine : candidates) {
        if (engine->is_lost()) continue;
        const auto start = Clock::now();
        try {
            sequence_.text.assign(kept);
            read_on(*engine, tokens);
        } catch (const Error &error) {
            // for example, the engine has no memory for the cache; then the next engine is tried
            last = error.what();
            continue;
        }
        m.to = engine->name;
        m.milliseconds = milliseconds_since(start);
        log().warn("{}; device '{}' was lost at token {}; backend {} computed the text again and "
                   "continues",
                   why.what(), device, tokens + 1, engine->name);
        sequence_.meter.add_move(std::move(m));
        return *engine;
    }
    sequence_.text.assign(kept);
    throw_error(
        ErrorKind::runtime,
        "{}; the error happened at token {} on device '{}', and no other backend can continue{}{}",
        why.what(), tokens + 1, device, last.empty() ? "" : ": ", last);
}

void SequenceMover::retake(std::span<const int32_t> ids, StepKind kind, uint32_t logit_rows) {
    // the lost engine can have had a larger limit than this engine
    const size_t most = current_engine().graph->max_tokens();
    for (; ids.size() > most; ids = ids.subspan(most)) {
        runner_.step(sequence_, ids.first(most), StepKind::prefill_chunk, 0);
        finish_step();
    }
    runner_.step(sequence_, ids, kind, logit_rows);
}

} // namespace keel
