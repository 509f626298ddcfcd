#pragma once

#include "kv/evict/pressure.hpp"
#include "run/sequence_mover.hpp"

#include <memory>
#include <vector>

namespace keel {

// Decides on which backend of a hybrid a sequence runs its next step, if the backends take turns.
// Each sequence has its own object.
class SwitchRules {
  public:
    explicit SwitchRules(Pipeline &pipeline);
    // For a fork: copies the state of the parent's rules.
    SwitchRules(Pipeline &pipeline, const SwitchRules &parent);
    // Call it when the sequence begins again.
    void reset();

    // Returns the engine on which a sequence begins.
    Engine &start() const;
    // These functions return the engine on which steps run according to the rules. The device of
    // the engine can be lost.
    Engine &prefill_engine() const;
    Engine &decode_engine() const;
    // Returns all engines, in the order in which to try them after a device was lost.
    std::vector<Engine *> candidates() const;
    // Sets the engine on which the sequence runs from now on.
    void choose(Engine &engine) { chosen_ = &engine; }

    // Call it when a decode step begins.
    void count_decode() { ++decode_steps_; }
    // Returns true if memory has become short since the last call, so that the sequence must
    // switch. `tokens`: the number of tokens in the sequence.
    bool pressure_fires(int64_t tokens);
    // Returns true if the sequence must switch because of hybrid.switch.after_tokens. This happens
    // at most once.
    bool tokens_fire();
    // Returns true if the next decode step also runs on `current`, unless memory becomes short.
    bool stays_on(const Engine &current) const;

    // Move the sequence to the engine that the rules require before a prefill or before a decode
    // step.
    void before_prefill(SequenceMover &mover) const;
    void before_decode(SequenceMover &mover);
    // Switches the sequence on request of the user. Throws Error(usage) if the config does not
    // allow it.
    enum class Switch {
        there,   // the sequence is on this backend already
        done,    // the sequence has moved to this backend
        refused, // the sequence stays on its backend; SessionStats::moves has the reason
    };
    Switch command(SequenceMover &mover, Engine &to);

  private:
    void go(SequenceMover &mover, BackendMove::Why why, int64_t warmup_tokens);

    Pipeline &pipeline_;
    const pipeline::SwitchSection &config_;
    Engine *chosen_ = nullptr;             // the target of the last switch; NULL: the config
                                           // decides
    int64_t decode_steps_ = 0;             // decode steps since the sequence began
    bool tokens_fired_ = false;            // true: the switch for hybrid.switch.after_tokens was
                                           // already tried
    std::unique_ptr<PressureWatch> watch_; // NULL: memory pressure does not cause a switch
};

} // namespace keel
