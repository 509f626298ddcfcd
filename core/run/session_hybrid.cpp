// A session whose sequence goes from one of a hybrid's backends to another: when it does.
#include "run/session_hybrid.hpp"

#include "base/log.hpp"
#include "device/trace.hpp"

#include <algorithm>

namespace keel {
namespace {

void copy_cache(KvCache &to, const KvCache &from) {
    to.reserve_like(from);
    for (uint32_t l = 0; l < to.shape().layers; ++l)
        to.take_rows(from, l);
}

} // namespace

// ---- the session's side --------------------------------------------------------------------------------------------

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
void Session::after_decode() {
    hybrid_->after_decode();
}
bool Session::stays() const {
    return !hybrid_ || hybrid_->stays();
}
void Session::note_truncate() {
    hybrid_->truncated();
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

std::optional<int32_t> Session::likeliest() const {
    if (said_) return said_;
    if (!logits_read_ || logits_.empty()) return std::nullopt;
    const auto row = std::span(logits_).last(static_cast<size_t>(pipeline_.model().vocab_size));
    return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
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
                "{}; it happened at token {} on device '{}', and no other backend can go on", error.what(),
                tokens + 1, device->device_info().name);
}

// From the first token on, into an empty cache.
void Session::read_again(std::span<const int32_t> ids) {
    forget_step();
    history_.clear();
    std::string why;
    if (!cache().can_take(static_cast<int64_t>(ids.size()), true, &why)) {
        throw_error(ErrorKind::resource, "its {} tokens cannot be read anew on backend {}: {}", ids.size(),
                    engine().name, why);
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

// ---- where and when ------------------------------------------------------------------------------------------------

Session::Hybrid::Hybrid(Session &session)
    : session_(session), config_(session.pipeline_.config().hybrid.switching) {
    if (!config_.has(pipeline::SwitchTrigger::pressure)) return;
    PressureConfig c;
    if (*config_.available_mib) c.low = static_cast<uint64_t>(**config_.available_mib * 1048576.0);
    c.steps = {0.5}; // one: it switches, or it does not
    watch_ = std::make_unique<PressureWatch>(c, session.pipeline_.monitor());
}

Session::Hybrid::Hybrid(Session &session, const Hybrid &parent) : Hybrid(session) {
    chosen_ = parent.chosen_;
    written_ = parent.written_;
    counted_ = parent.counted_;
    commanded_ = parent.commanded_;
    if (parent.warms_up()) want_again(parent.why_, parent.target_);
}

void Session::Hybrid::drop_warmup() {
    shadow_.reset();
    target_ = nullptr;
    shadow_said_.reset();
    wanted_ = warmed_ = compared_ = agreed_ = 0;
}

void Session::Hybrid::want_again(Why why, Engine *target) {
    if (why == Why::command) commanded_ = target;
    if (why == Why::tokens) counted_ = false;
}

void Session::Hybrid::reset() {
    chosen_ = commanded_ = target_ = nullptr;
    written_ = 0;
    counted_ = false;
    drop_warmup();
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
    if (warms_up()) { // what is left of the warm-up would stand in the prompt's way
        finish();
    }
    Engine &wanted = alive(chosen_ != nullptr ? *chosen_ : session_.pipeline_.prefill_engine());
    if (&wanted != &here()) move(wanted, Why::phase);
}

void Session::Hybrid::before_decode() {
    using pipeline::SwitchTrigger;
    if (warms_up()) judge();
    const bool short_of_memory =
        watch_ && watch_->poll(session_.tokens(), 2) == PressureWatch::Change::tighter;
    if (short_of_memory) {
        const PressureFacts &facts = watch_->facts();
        log().warn("memory is short: {}; the KV cache goes to backend {}", facts.why, *config_.to);
        drop_warmup();
        begin(*session_.pipeline_.find_engine(*config_.to), Why::pressure, 0);
    } else if (warms_up()) {
        if (warmed_ >= wanted_) finish();
    } else {
        place();
        if (commanded_ != nullptr)
            begin(*std::exchange(commanded_, nullptr), Why::command, *config_.warmup_tokens);
        else if (config_.has(SwitchTrigger::tokens) && !counted_)
            count();
    }
    if (!warms_up()) place();
}

// But for memory that becomes short, which nobody knows before.
bool Session::Hybrid::stays() const {
    if (warms_up() || commanded_ != nullptr || &alive(decode_engine()) != &here()) return false;
    if (!config_.has(pipeline::SwitchTrigger::tokens) || counted_) return true;
    const int64_t after = **config_.after_tokens;
    return written_ + 1 < after - std::min(*config_.warmup_tokens, after - 1);
}

// The switch after a number of tokens; the last of them are the warm-up's.
void Session::Hybrid::count() {
    const int64_t after = **config_.after_tokens, warmup = std::min(*config_.warmup_tokens, after - 1);
    if (written_ < after - warmup) return;
    counted_ = true;
    begin(*session_.pipeline_.find_engine(*config_.to), Why::tokens, after - written_);
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

// A switch, after so many warm-up tokens.
void Session::Hybrid::begin(Engine &target, Why why, int64_t warmup) {
    if (&target == &here()) {
        chosen_ = &target;
        return; // it is there
    }
    session_.drop_ahead();
    if (warmup <= 0) {
        if (move(target, why)) chosen_ = &target;
        return;
    }
    drop_warmup();
    target_ = &target;
    why_ = why;
    wanted_ = warmup;
    try {
        const TraceSpan span(here().executor->stream().trace(), "copy for a warm-up", "switch");
        shadow_ = std::make_unique<KvCache>(*target.executor, target.kv_shape, target.placement());
        copy_cache(*shadow_, session_.cache().cache());
    } catch (const Error &error) {
        drop_warmup();
        if (here().is_lost()) throw;
        BackendMove m = note(target, why);
        refuse(m, error.what());
    }
}

// The last token that both computed: is what the new backend found likeliest what the old one did?
void Session::Hybrid::judge() {
    const std::optional<int32_t> said = session_.likeliest();
    if (shadow_said_ && said) {
        ++compared_;
        if (*said == *shadow_said_) ++agreed_;
    }
    shadow_said_.reset();
}

// The step was queued on the old backend; the new one computes the same.
void Session::Hybrid::after_decode() {
    if (!warms_up()) return;
    here().executor->stream().end_of_step(); // the two may run at once
    try {
        const TraceSpan span(here().executor->stream().trace(), "warm-up", "switch");
        if (!shadow_->fits(1)) { // the old one evicts, a copy does not
            wanted_ = warmed_;
            return;
        }
        shadow_->append(session_.step_positions_, 1);
        Graph &graph = *target_->graph;
        graph.forward(session_.step_ids_, session_.step_positions_, shadow_->views(), 1);
        graph.queue_argmax();
        int32_t id = -1;
        graph.next_id().read(&id);
        shadow_said_ = id;
        ++warmed_;
    } catch (const Error &error) { // nothing is lost: the sequence is where it was
        BackendMove m = note(*target_, why_);
        drop_warmup();
        refuse(m, error.what());
    }
}

void Session::Hybrid::truncated() {
    if (!warms_up()) return;
    want_again(why_, target_);
    drop_warmup();
}

void Session::Hybrid::finish() {
    shadow_.reset();
    Engine &target = *std::exchange(target_, nullptr);
    if (move(target, why_)) chosen_ = &target;
}

Session::Switch Session::Hybrid::command(Engine &target) {
    if (!config_.has(pipeline::SwitchTrigger::command)) {
        throw_error(ErrorKind::usage,
                    "hybrid.switch.on does not list command: add it there to switch by hand");
    }
    if (target.is_lost())
        throw_error(ErrorKind::usage, "backend {} cannot be switched to: its device was lost", target.name);
    commanded_ = nullptr;
    if (&target ==
        &decode_engine()) { // what was asked for by hand is taken back; the config's own switch goes on
        if (warms_up() && why_ == Why::command) drop_warmup();
        return Switch::there;
    }
    drop_warmup();
    if (session_.tokens() == 0) { // nothing to take along, and nothing to be warm for
        chosen_ = &target;
        return Switch::done;
    }
    if (*config_.warmup_tokens > 0) {
        commanded_ = &target;
        return Switch::warming;
    }
    if (&target != &here() && !move(target, Why::command)) return Switch::refused;
    chosen_ = &target;
    return Switch::done;
}

} // namespace keel
