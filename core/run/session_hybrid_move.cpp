// How a hybrid's sequence goes from one backend to another: with its cache, or read anew where that
// is lost.
#include "run/session_hybrid.hpp"

#include "base/display.hpp"
#include "base/log.hpp"
#include "device/trace.hpp"

#include <algorithm>
#include <chrono>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// The name of the key, or what happened, for people.
const char *reason_text(BackendMove::Why why) {
    switch (why) {
    case BackendMove::Why::phase:
        return "prefill and decode";
    case BackendMove::Why::tokens:
        return "switch.after_tokens";
    case BackendMove::Why::pressure:
        return "memory pressure";
    case BackendMove::Why::command:
        return "/switch";
    case BackendMove::Why::lost:
        break;
    }
    return "the device was lost";
}

} // namespace

const char *move_reason_name(BackendMove::Why why) {
    switch (why) {
    case BackendMove::Why::phase:
        return "phase";
    case BackendMove::Why::tokens:
        return "tokens";
    case BackendMove::Why::pressure:
        return "pressure";
    case BackendMove::Why::command:
        return "command";
    case BackendMove::Why::lost:
        break;
    }
    return "device_lost";
}

std::string move_text(const BackendMove &m) {
    std::string text =
        fmt::format("{} -> {} after {} tokens ({}): ", m.from, m.to, m.tokens, reason_text(m.why));
    if (!m.refused.empty()) return text + "refused, it stays on " + m.from + ": " + m.refused;
    if (m.why == BackendMove::Why::lost)
        return text +
               fmt::format("{} tokens read anew in {:.1f} ms", m.reread_tokens, m.milliseconds);
    text += fmt::format("{} in {:.1f} ms", format_bytes(m.bytes), m.milliseconds);
    if (m.warmup_tokens > 0) text += fmt::format(", {} warm-up tokens", m.warmup_tokens);
    return text;
}

void Session::Hybrid::refuse(BackendMove &m, const std::string &error) {
    m.refused = error;
    log().warn("the sequence stays on backend {}: it cannot go to {}: {}", m.from, m.to, error);
    session_.stats_.moves.push_back(m);
}

int64_t Session::Hybrid::warm_up(Engine &target, int64_t tokens) {
    if (tokens == 0) return 0;
    const TraceSpan span(target.executor->stream().trace(), "warm-up", "switch");
    KvCache scratch(*target.executor, target.kv_shape, target.placement());
    Graph &graph = *target.graph;
    const int32_t token = 0;
    int64_t done = 0;
    while (done < tokens && scratch.fits(1) && !session_.pipeline_.host().cancelled()) {
        const auto position = static_cast<int32_t>(done);
        scratch.append({&position, 1}, 1);
        graph.forward({.positions = {&position, 1},
                       .kv = scratch.views(),
                       .ids = {&token, 1},
                       .logit_rows = 1});
        graph.next().queue_argmax();
        int32_t likeliest = 0;
        graph.next().ids().read(&likeliest); // waits, as a real step does
        ++done;
    }
    return done;
}

bool Session::Hybrid::move(Engine &target, Why why, int64_t warmup) {
    Part &part = session_.parts_.front();
    Engine &from = *part.engine;
    if (&target == &from) return true;
    BackendMove m = note(target, why);
    Trace *trace = from.executor->stream().trace();
    Clock::time_point start;
    double begin = 0;
    std::unique_ptr<CacheManager> fresh;
    try {
        m.warmup_tokens = warm_up(target, warmup);
        start = Clock::now(); // of the move alone
        if (trace != nullptr) begin = trace->now();
        session_.settle();
        fresh = part.cache->begin_move(*target.cache_plan, target.placement());
    } catch (const Error &error) {
        if (from.is_lost()) throw;
        refuse(m, error.what());
        return false;
    }
    const size_t tokens = session_.history_.size();
    try {
        m.bytes = part.cache->finish_move(*fresh);
    } catch (const Error &error) { // in pieces on both sides
        fresh.reset();
        if (from.is_lost()) throw;
        refuse(m, error.what());
        const std::optional<int32_t> pending = session_.pending_;
        read_on(from, tokens);
        session_.pending_ = pending;
        return false;
    }
    session_.stats(); // the peak of what was
    part = {&target, std::move(fresh)};
    from.device().trim(); // the memory that it had is somebody else's now
    session_.serve_replay();
    m.milliseconds = milliseconds_since(start);
    if (trace != nullptr) {
        trace->span("switch", "switch", begin, trace->now(),
                    {{"from", Trace::text(m.from)},
                     {"to", Trace::text(m.to)},
                     {"why", Trace::text(move_reason_name(why))},
                     {"tokens", std::to_string(m.tokens)},
                     {"bytes", std::to_string(m.bytes)}});
    }
    if (m.tokens > 0) session_.stats_.moves.push_back(std::move(m)); // an empty cache is no move
    return true;
}

// The first `tokens` tokens, read anew on an engine: with the promises of the cache that is given
// up.
void Session::Hybrid::read_on(Engine &engine, size_t tokens) {
    Part &part = session_.parts_.front();
    auto fresh = std::make_unique<CacheManager>(*engine.cache_plan, engine.placement());
    fresh->begin_like(*part.cache);
    part = {&engine, std::move(fresh)};
    session_.serve_replay();
    const std::vector<int32_t> ids(session_.history_.begin(),
                                   session_.history_.begin() + static_cast<std::ptrdiff_t>(tokens));
    session_.read_again(ids);
}

void Session::Hybrid::rebuild(size_t tokens, const Error &why) {
    const Engine &lost = here();
    const std::vector<int32_t> history(
        session_.history_.begin(), session_.history_.begin() + static_cast<std::ptrdiff_t>(tokens));
    // Where it would be anyway comes first.
    std::vector<Engine *> others = {&decode_engine(), &session_.pipeline_.prefill_engine()};
    for (const auto &engine : session_.pipeline_.engines()) {
        if (std::find(others.begin(), others.end(), engine.get()) == others.end())
            others.push_back(engine.get());
    }
    if (others[0] == others[1]) others.erase(others.begin());
    BackendMove m = note(lost, Why::lost);
    m.tokens = static_cast<int64_t>(tokens);
    m.reread_tokens = static_cast<int64_t>(tokens);
    const std::string device = lost.executor->lost_device()->device_info().name;
    std::string last;
    for (Engine *engine : others) {
        if (engine->is_lost()) continue;
        const auto start = Clock::now();
        try {
            session_.history_ = history;
            read_on(*engine, tokens);
        } catch (const Error &error) { // no memory there, say: the next one may have it
            last = error.what();
            continue;
        }
        chosen_ = engine;
        m.to = engine->name;
        m.milliseconds = milliseconds_since(start);
        log().warn("{}; device '{}' is gone at token {}: backend {} read the text anew and goes on",
                   why.what(), device, tokens + 1, engine->name);
        session_.stats_.moves.push_back(std::move(m));
        return;
    }
    session_.history_ = history;
    session_.is_broken_ = true;
    throw_error(ErrorKind::runtime,
                "{}; it happened at token {} on device '{}', and no other backend can go on{}{}",
                why.what(), tokens + 1, device, last.empty() ? "" : ": ", last);
}

} // namespace keel
