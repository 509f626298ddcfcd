#include "run/switch_rules.hpp"

#include "base/error.hpp"
#include "base/log.hpp"

#include <algorithm>

namespace keel {
namespace {

using Why = BackendMove::Why;
using pipeline::SwitchTrigger;

// Returns the wanted engine, or the current engine if the device of the wanted engine is lost.
Engine &alive(Engine &wanted, Engine &current) { return wanted.is_lost() ? current : wanted; }

} // namespace

SwitchRules::SwitchRules(Pipeline &pipeline)
    : pipeline_(pipeline), config_(pipeline.config().hybrid.switching) {
    if (!config_.has(SwitchTrigger::pressure)) return;
    PressureConfig c;
    if (*config_.available_mib) c.low = static_cast<uint64_t>(**config_.available_mib * 1048576.0);
    c.levels = {0.5}; // one level is enough, because a sequence either switches or does not
    watch_ = std::make_unique<PressureWatch>(c, pipeline.monitor());
}

SwitchRules::SwitchRules(Pipeline &pipeline, const SwitchRules &parent) : SwitchRules(pipeline) {
    chosen_ = parent.chosen_;
    decode_steps_ = parent.decode_steps_;
    tokens_fired_ = parent.tokens_fired_;
}

void SwitchRules::reset() {
    chosen_ = nullptr;
    decode_steps_ = 0;
    tokens_fired_ = false;
    if (watch_) watch_->restart();
}

Engine &SwitchRules::start() const {
    Engine &wanted = pipeline_.engines().prefill();
    if (!wanted.is_lost()) return wanted;
    for (const auto &engine : pipeline_.engines()) {
        if (!engine->is_lost()) return *engine;
    }
    return wanted; // the next step will report the lost device
}

Engine &SwitchRules::prefill_engine() const {
    return chosen_ != nullptr ? *chosen_ : pipeline_.engines().prefill();
}

Engine &SwitchRules::decode_engine() const {
    return chosen_ != nullptr ? *chosen_ : pipeline_.engines().decode();
}

std::vector<Engine *> SwitchRules::candidates() const {
    std::vector<Engine *> all = {&decode_engine()};
    const auto add = [&](Engine &engine) {
        if (std::find(all.begin(), all.end(), &engine) == all.end()) all.push_back(&engine);
    };
    add(pipeline_.engines().prefill());
    for (const auto &engine : pipeline_.engines()) add(*engine);
    return all;
}

bool SwitchRules::pressure_fires(int64_t tokens) {
    if (!watch_ || watch_->poll(tokens, 2) != PressureWatch::Change::tighter) return false;
    log().warn("memory is short: {}; the KV cache moves to backend {}", watch_->state().why,
               *config_.to);
    return true;
}

bool SwitchRules::tokens_fire() {
    if (!config_.has(SwitchTrigger::tokens) || tokens_fired_) return false;
    tokens_fired_ = decode_steps_ >= **config_.after_tokens;
    return tokens_fired_;
}

bool SwitchRules::stays_on(const Engine &current) const {
    Engine &wanted = decode_engine();
    if (!wanted.is_lost() && &wanted != &current) return false;
    if (!config_.has(SwitchTrigger::tokens) || tokens_fired_) return true;
    return decode_steps_ + 1 < **config_.after_tokens;
}

void SwitchRules::before_prefill(SequenceMover &mover) const {
    mover.move(alive(prefill_engine(), mover.current_engine()), Why::phase);
}

void SwitchRules::before_decode(SequenceMover &mover) {
    const bool short_of_memory = pressure_fires(mover.tokens());
    if (short_of_memory) go(mover, Why::pressure, 0);
    // If the sequence cannot move to the decode engine, it stays on its engine. The move is not
    // tried again at each token.
    if (!mover.move(alive(decode_engine(), mover.current_engine()), Why::phase))
        choose(mover.current_engine());
    if (!short_of_memory && tokens_fire()) go(mover, Why::tokens, *config_.warmup_tokens);
}

void SwitchRules::go(SequenceMover &mover, Why why, int64_t warmup_tokens) {
    Engine &to = *pipeline_.engines().find(*config_.to);
    if (mover.move(to, why, warmup_tokens)) choose(to);
}

SwitchRules::Switch SwitchRules::command(SequenceMover &mover, Engine &to) {
    if (!config_.has(SwitchTrigger::command)) {
        throw_error(ErrorKind::usage, "hybrid.switch.on does not list the trigger command; add "
                                      "command to the list to switch with /switch");
    }
    if (to.is_lost()) {
        throw_error(ErrorKind::usage,
                    "decode cannot switch to backend {}, because its device was lost", to.name);
    }
    if (&to == &decode_engine()) return Switch::there;
    const bool is_empty = mover.tokens() == 0; // an empty sequence has no cache to move
    if (!is_empty && !mover.move(to, Why::command, *config_.warmup_tokens)) return Switch::refused;
    choose(to);
    return Switch::done;
}

} // namespace keel
