// A session whose sequence goes from one of a hybrid's backends to another: when it does.
#include "run/session_hybrid.hpp"

#include "base/log.hpp"

namespace keel {
// ---- the session's side -------------------------------------------------------------------------

void Session::start_hybrid() {
    hybrid_ = std::make_unique<Hybrid>(*this);
    Engine &start = hybrid_->start();
    add_part(start, *start.cache_plan);
}

void Session::fork_hybrid(const Session &parent) {
    if (parent.hybrid_) hybrid_ = std::make_unique<Hybrid>(*this, *parent.hybrid_);
}

void Session::before_prefill() {
    hybrid_->before_prefill();
}
void Session::note_decode() {
    hybrid_->note_decode();
}
void Session::before_decode() {
    hybrid_->before_decode();
}
bool Session::stays() const {
    return !hybrid_ || hybrid_->stays();
}

// Back to where sequences begin, without taking anything along.
void Session::reset_hybrid() {
    hybrid_->reset();
    Engine &start = hybrid_->start();
    if (&start == parts_.front().engine) return;
    parts_.clear();
    add_part(start, *start.cache_plan);
    serve_replay();
}

Session::Switch Session::switch_to(Engine &engine) {
    if (!hybrid_)
        throw_error(ErrorKind::usage,
                    "this pipeline has no backends to switch between; 'hybrid' names several");
    if (!logits_read_ && results_ != nullptr) logits(); // they lie where the step ran
    settle();
    return hybrid_->command(engine);
}

void Session::go_on_elsewhere(const Error &error, size_t tokens) {
    if (engine().is_lost()) forget_ahead();
    if (hybrid_) {
        if (!engine().is_lost()) throw; // something else
        return hybrid_->rebuild(tokens, error);
    }
    const Device *device = pipeline_.lost_device();
    if (device == nullptr) throw; // something else
    is_broken_ = true;
    throw_error(ErrorKind::runtime,
                "{}; it happened at token {} on device '{}', and no other backend can go on",
                error.what(), tokens + 1, device->device_info().name);
}

// From the first token on, into an empty cache.
void Session::read_again(std::span<const int32_t> ids) {
    forget_step();
    history_.clear();
    std::string why;
    if (!cache().can_take(static_cast<int64_t>(ids.size()), true, &why)) {
        throw_error(ErrorKind::resource, "its {} tokens cannot be read anew on backend {}: {}",
                    ids.size(), engine().name, why);
    }
    while (!ids.empty()) {
        const auto n = static_cast<size_t>(next_chunk(std::ssize(ids)));
        step(ids.first(n), n == ids.size() ? StepKind::prefill_end : StepKind::prefill_chunk, 0);
        settle();
        ids = ids.subspan(n);
    }
    engine().executor->stream().wait(); // what fails, fails here
    forget_step();
}

// ---- where and when -----------------------------------------------------------------------------

Session::Hybrid::Hybrid(Session &session)
    : session_(session), config_(session.pipeline_.config().hybrid.switching) {
    if (!config_.has(pipeline::SwitchTrigger::pressure)) return;
    PressureConfig c;
    if (*config_.available_mib) c.low = static_cast<uint64_t>(**config_.available_mib * 1048576.0);
    c.levels = {0.5}; // one: it switches, or it does not
    watch_ = std::make_unique<PressureWatch>(c, session.pipeline_.monitor());
}

Session::Hybrid::Hybrid(Session &session, const Hybrid &parent) : Hybrid(session) {
    chosen_ = parent.chosen_;
    written_ = parent.written_;
    counted_ = parent.counted_;
}

void Session::Hybrid::reset() {
    chosen_ = nullptr;
    written_ = 0;
    counted_ = false;
    if (watch_) watch_->restart();
}

Engine &Session::Hybrid::start() const {
    Engine &wanted = session_.pipeline_.prefill_engine();
    if (!wanted.is_lost()) return wanted;
    for (const auto &engine : session_.pipeline_.engines()) {
        if (!engine->is_lost()) return *engine;
    }
    return wanted; // says so at the first step
}

void Session::Hybrid::before_prefill() {
    Engine &wanted = alive(chosen_ != nullptr ? *chosen_ : session_.pipeline_.prefill_engine());
    if (&wanted != &here()) move(wanted, Why::phase);
}

void Session::Hybrid::before_decode() {
    const bool short_of_memory =
        watch_ && watch_->poll(session_.tokens(), 2) == PressureWatch::Change::tighter;
    if (short_of_memory) {
        const PressureState &state = watch_->state();
        log().warn("memory is short: {}; the KV cache goes to backend {}", state.why, *config_.to);
        begin(*session_.pipeline_.find_engine(*config_.to), Why::pressure, 0);
    }
    place();
    if (!short_of_memory && config_.has(pipeline::SwitchTrigger::tokens) && !counted_) count();
}

// But for memory that becomes short, which nobody knows before.
bool Session::Hybrid::stays() const {
    if (&alive(decode_engine()) != &here()) return false;
    if (!config_.has(pipeline::SwitchTrigger::tokens) || counted_) return true;
    return written_ + 1 < **config_.after_tokens;
}

// The switch after a number of tokens.
void Session::Hybrid::count() {
    if (written_ < **config_.after_tokens) return;
    counted_ = true;
    begin(*session_.pipeline_.find_engine(*config_.to), Why::tokens, *config_.warmup_tokens);
}

// To where decode runs. If it cannot go there it stays, and does not try at each token.
void Session::Hybrid::place() {
    Engine &wanted = alive(decode_engine());
    if (&wanted != &here() && !move(wanted, Why::phase)) chosen_ = &here();
}

BackendMove Session::Hybrid::note(const Engine &target, Why why) const {
    BackendMove m;
    m.why = why;
    m.from = here().name;
    m.to = target.name;
    m.tokens = session_.tokens();
    return m;
}

void Session::Hybrid::begin(Engine &target, Why why, int64_t warmup) {
    if (&target == &here()) {
        chosen_ = &target;
        return; // it is there
    }
    session_.drop_ahead();
    if (move(target, why, warmup)) chosen_ = &target;
}

Session::Switch Session::Hybrid::command(Engine &target) {
    if (!config_.has(pipeline::SwitchTrigger::command)) {
        throw_error(ErrorKind::usage,
                    "hybrid.switch.on does not list command: add it there to switch by hand");
    }
    if (target.is_lost())
        throw_error(ErrorKind::usage, "backend {} cannot be switched to: its device was lost",
                    target.name);
    if (&target == &decode_engine()) return Switch::there;
    if (session_.tokens() == 0) { // nothing to take along, and nothing to be warm for
        chosen_ = &target;
        return Switch::done;
    }
    if (!move(target, Why::command, *config_.warmup_tokens)) return Switch::refused;
    chosen_ = &target;
    return Switch::done;
}

} // namespace keel
