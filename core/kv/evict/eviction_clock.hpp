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
    int64_t target = 0;       // slots per head that can stay, on average over all layers and heads
    bool ends_prompt = false; // true: the eviction follows the last step of a prompt
};

// Decides when a sequence's slots are evicted, and down to which budget. It evicts nothing itself.
// Not thread-safe.
class EvictionClock {
  public:
    // `setup` and `tokens` must stay valid.
    EvictionClock(const PolicySetup &setup, const ProtectedTokens &tokens);

    // Returns true if the policy may evict before or after a step of this kind.
    bool may_act(StepKind kind) const;
    // Returns the budget after `seen` tokens. This is the config's budget, raised if pins need more
    // room, lowered by memory pressure. Do not call it for a policy that keeps all slots.
    BudgetNow budget(int64_t seen) const;

    // Records that n tokens were appended. If n is negative, -n tokens were removed.
    void count(int64_t n);
    // Call it if n tokens do not fit. If the policy may act now, returns the eviction that makes
    // room for the tokens.
    std::optional<Firing> before_append(StepKind kind, int64_t n, int64_t seen) const;
    // Returns the eviction that follows a step, if any. A trigger that fires counts from 0 again.
    std::optional<Firing> after_step(StepKind kind, const KvCache &cache, int64_t seen);
    // Returns true if the clock expects that slots will be evicted after this step. Call it after
    // the step's slots were appended. Reads the system's memory. look_at_memory() of the same step
    // then uses this reading.
    bool expects(StepKind kind, const KvCache &cache, int64_t seen);
    // Returns true if after_step() of the current decode step can evict or read the system's
    // memory. If the policy needs window scores, also returns true if after_step() of the next
    // decode step can evict. The reason: the next step would then compute scores.
    bool will_fire_next(const KvCache &cache, int64_t seen) const;
    // Returns the number of tokens that can come between an eviction of `trigger` and the next
    // eviction. This is the number of free slots, or less if a trigger fires earlier.
    int64_t tokens_to_come(keel_trigger trigger, const KvCache &cache, int64_t seen) const;

    // Returns true if n more tokens do not fit now, but would fit after evictions. `prompt`: true
    // if the tokens are part of a prompt. If evictions would not make enough room, adds to `why`
    // what the user can change.
    bool makes_room(int64_t n, bool prompt, int64_t seen, std::string &why) const;
    // Returns how many of n prompt tokens the next step can take if evictions make room for the
    // tokens.
    int64_t chunk_that_fits(int64_t n, const KvCache &cache, int64_t seen) const;

    // Returns true if memory pressure can cause an eviction after a step of this kind. Every policy
    // evicts under pressure, even a policy that otherwise acts only at the end of a prompt.
    bool answers_pressure(StepKind kind) const {
        return (kind != StepKind::prefill_chunk && kind != StepKind::prefill_pause) ||
               may_act(kind);
    }
    // Reads the system's memory if the config has the trigger `pressure`, unless expects() has read
    // it in this step. Call it before after_step().
    struct PressureAnswer {
        PressureWatch::Change change = PressureWatch::Change::none;
        std::optional<Firing> firing;
        const PressureState *state = nullptr; // the reason, if there is a change; valid until the
                                              // next call
    };
    PressureAnswer look_at_memory(StepKind kind, const KvCache &cache, int64_t seen);
    // The reason why the budget is smaller than the budget of the config. NULL: the budget is not
    // smaller.
    const std::shared_ptr<const PressureState> &pressure() const { return pressure_state_; }

    void reset();
    // Used for a fork, and for a sequence that moves to another device. `with_pressure`: also
    // copies the state of memory pressure.
    void copy_from(const EvictionClock &other, bool with_pressure);
    void save(StateWriter &out) const { out.put(since_every_n_); }
    void load(StateReader &in, int64_t seen) {
        since_every_n_ = in.get_count("tokens since the last eviction", 0, seen);
    }

  private:
    // Returns the eviction that is due after a step, if any. `more`: the function assumes that this
    // many further tokens were decoded.
    std::optional<Firing> due(StepKind kind, const KvCache &cache, int64_t seen,
                              int64_t more = 0) const;
    bool fires_every_n(int64_t more = 0) const;
    bool is_over(const BudgetNow &budget, const KvCache &cache, int64_t more = 0) const;
    PressureAnswer read_memory(StepKind kind, const KvCache &cache, int64_t seen);

    const PolicySetup &setup_;
    const ProtectedTokens &tokens_;
    int64_t since_every_n_ = 0;             // tokens since the trigger `every_n` fired last
    std::optional<PressureWatch> pressure_; // nullopt: memory is not watched
    std::shared_ptr<const PressureState> pressure_state_;
    std::optional<PressureAnswer> looked_; // the memory reading that expects() made in the current
                                           // step
};

} // namespace keel
