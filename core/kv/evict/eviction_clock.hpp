#pragma once

#include "kv/evict/policy_setup.hpp"
#include "kv/evict/pressure.hpp"
#include "kv/evict/protected_tokens.hpp"
#include "kv/inputs/step_kind.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace keel {

// An eviction that is due.
struct Firing {
    keel_trigger trigger = KEEL_TRIGGER_BUDGET;
    int64_t target = 0;       // slots per head that may stay, on average over all layers and heads
    bool ends_prompt = false; // after the last step of a prompt
};

// Says when a sequence's slots are evicted, and down to which budget. It evicts nothing itself.
// Not thread-safe.
class EvictionClock {
  public:
    // Both must stay valid.
    EvictionClock(const PolicySetup &setup, const ProtectedTokens &tokens);

    // May the policy evict in or after such a step?
    bool may_act(StepKind kind) const;
    // The budget after `seen` tokens: the config's budget, raised if pins need more room, lowered
    // by memory pressure. Not for a policy that keeps all.
    BudgetNow budget(int64_t seen) const;

    // n tokens were appended. If n is negative, -n tokens were removed.
    void count(int64_t n);
    // The eviction that makes room for n tokens that do not fit, if the policy may act now.
    std::optional<Firing> before_append(StepKind kind, int64_t n, int64_t seen) const;
    // The eviction that follows a step. A trigger that fires begins to count again.
    std::optional<Firing> after_step(StepKind kind, const KvCache &cache, int64_t seen);
    // Will slots be evicted after this step, as far as the clock can tell? Call it after the step's
    // slots were appended. Reads the system's memory; look_at_memory() of the same step then uses
    // this reading.
    bool expects(StepKind kind, const KvCache &cache, int64_t seen);
    // Could after_step() of the current decode step evict, or read the system's memory? If the
    // policy needs window scores: could after_step() of the next decode step evict? (That step
    // would then compute scores.)
    bool will_fire_next(const KvCache &cache, int64_t seen) const;
    // How many tokens may come between an eviction of `trigger` and the next one: as many as there
    // is room for, unless a trigger fires sooner.
    int64_t tokens_to_come(keel_trigger trigger, const KvCache &cache, int64_t seen) const;

    // Would evictions make room for n more tokens that do not fit now? `prompt`: as a prefill. If
    // not, adds to `why` what to change.
    bool makes_room(int64_t n, bool prompt, int64_t seen, std::string &why) const;
    // How many of n prompt tokens the next step can take, so that evictions make room for them.
    int64_t chunk_that_fits(int64_t n, const KvCache &cache, int64_t seen) const;

    // May memory pressure evict after such a step? Every policy evicts under pressure, even one
    // that otherwise acts only at the end of a prompt.
    bool answers_pressure(StepKind kind) const {
        return (kind != StepKind::prefill_chunk && kind != StepKind::prefill_pause) ||
               may_act(kind);
    }
    // Reads the system's memory if the config has the trigger for it, unless expects() did so for
    // this step. Call it before after_step().
    struct PressureAnswer {
        PressureWatch::Change change = PressureWatch::Change::none;
        std::optional<Firing> firing;
        const PressureState *state = nullptr; // with a change: why. Valid until the next look
    };
    PressureAnswer look_at_memory(StepKind kind, const KvCache &cache, int64_t seen);
    // Why the budget is smaller than the config's. NULL: it is not smaller.
    const std::shared_ptr<const PressureState> &pressure() const { return pressure_state_; }

    void reset();
    // For a fork, and for a sequence that moves to another device. `with_pressure`: also copies the
    // state of memory pressure.
    void copy_from(const EvictionClock &other, bool with_pressure);
    void save(StateWriter &out) const { out.put(since_every_n_); }
    void load(StateReader &in, int64_t seen) {
        since_every_n_ = in.get_count("tokens since the last eviction", 0, seen);
    }

  private:
    // The eviction that is due after a step. `more`: after this many further decoded tokens.
    std::optional<Firing> due(StepKind kind, const KvCache &cache, int64_t seen,
                              int64_t more = 0) const;
    bool fires_every_n(int64_t more = 0) const;
    bool is_over(const BudgetNow &budget, const KvCache &cache, int64_t more = 0) const;
    PressureAnswer read_memory(StepKind kind, const KvCache &cache, int64_t seen);

    const PolicySetup &setup_;
    const ProtectedTokens &tokens_;
    int64_t since_every_n_ = 0;             // tokens since the trigger `every_n` fired
    std::optional<PressureWatch> pressure_; // none: memory is not watched
    std::shared_ptr<const PressureState> pressure_state_;
    std::optional<PressureAnswer> looked_; // the reading of expects(), for the current step
};

} // namespace keel
