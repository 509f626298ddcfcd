#pragma once

#include "kv/evict/pressure.hpp"
#include "run/sequence_mover.hpp"

#include <memory>
#include <vector>

namespace keel {

// Decides on which backend of a hybrid a sequence runs its next step, if the backends take turns.
// One for each sequence.
class SwitchRules {
  public:
    explicit SwitchRules(Pipeline &pipeline);
    // For a fork: copies the state of the parent's rules.
    SwitchRules(Pipeline &pipeline, const SwitchRules &parent);
    // The sequence begins again.
    void reset();

    // The engine on which a sequence begins.
    Engine &start() const;
    // The engine on which steps run according to the rules. Its device may be lost.
    Engine &prefill_engine() const;
    Engine &decode_engine() const;
    // All engines, in the order in which to try them after a device was lost.
    std::vector<Engine *> candidates() const;
    // From now on the sequence runs on this engine.
    void choose(Engine &engine) { chosen_ = &engine; }

    // A decode step begins.
    void count_decode() { ++decode_steps_; }
    // Whether memory became short since the last call, so that the sequence has to switch.
    // `tokens`: tokens in the sequence.
    bool pressure_fires(int64_t tokens);
    // Whether the sequence has to switch because of hybrid.switch.after_tokens. True at most once.
    bool tokens_fire();
    // Whether the next decode step also runs on `current`, if memory does not become short.
    bool stays_on(const Engine &current) const;

    // Move the sequence as the rules say, before a prefill and before a decode step.
    void before_prefill(SequenceMover &mover) const;
    void before_decode(SequenceMover &mover);
    // The user wants the sequence to switch. Throws Error(usage) if the config does not allow it.
    enum class Switch {
        there,   // it is there already
        done,    // it is there now
        refused, // it stays where it is; SessionStats::moves says why
    };
    Switch command(SequenceMover &mover, Engine &to);

  private:
    void go(SequenceMover &mover, BackendMove::Why why, int64_t warmup_tokens);

    Pipeline &pipeline_;
    const pipeline::SwitchSection &config_;
    Engine *chosen_ = nullptr;             // target of the last switch; NULL: as the config says
    int64_t decode_steps_ = 0;             // since the sequence began
    bool tokens_fired_ = false;            // the switch after a number of tokens was tried
    std::unique_ptr<PressureWatch> watch_; // NULL: pressure does not switch
};

} // namespace keel
