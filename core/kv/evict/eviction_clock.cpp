#include "kv/evict/eviction_clock.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace keel {

EvictionClock::EvictionClock(const PolicySetup &setup, const ProtectedTokens &tokens)
    : setup_(setup), tokens_(tokens) {
    const CacheConfig &config = setup.config();
    if (setup.keeps_all() || !config.pressure) return;
    pressure_.emplace(*config.pressure, config.monitor ? config.monitor : system_monitor());
}

bool EvictionClock::may_act(StepKind kind) const {
    if (setup_.keeps_all()) return false;
    return kind == StepKind::decode ? !setup_.prefill_only() : setup_.acts_in_prefill();
}

BudgetNow EvictionClock::budget(int64_t seen) const {
    const CacheConfig &config = setup_.config();
    BudgetNow now = setup_.budget().at(seen, tokens_.prefix());
    if (config.budget_unit == BudgetUnit::none)
        now.tokens += tokens_.pinned() - pinned_slots(config);
    if (config.budget_unit == BudgetUnit::ratio)
        now.tokens = std::max(now.tokens, tokens_.slots() + 1);
    if (!pressure_) return now;
    if (const auto cap = pressure_->cap()) {
        const int64_t least = std::max<int64_t>(tokens_.slots() + 1, setup_.needs().least_budget);
        now.tokens = std::min(now.tokens, std::max(*cap, least));
        now.slack = std::min(now.slack, now.tokens / 8);
    }
    return now;
}

void EvictionClock::count(int64_t n) { since_every_n_ = std::max<int64_t>(0, since_every_n_ + n); }

bool EvictionClock::fires_every_n(int64_t more) const {
    const std::optional<int64_t> &every_n = setup_.config().every_n;
    return every_n && since_every_n_ + more >= *every_n;
}

// Returns true if all heads together hold more slots than budget and slack allow.
bool EvictionClock::is_over(const BudgetNow &budget, const KvCache &cache, int64_t more) const {
    const auto rows = static_cast<int64_t>(cache.rows());
    return cache.total_length() + more * rows > (budget.tokens + budget.slack) * rows;
}

std::optional<Firing> EvictionClock::before_append(StepKind kind, int64_t n, int64_t seen) const {
    if (!may_act(kind) || !setup_.config().at_insert) return std::nullopt;
    const int64_t target = std::min(budget(seen).tokens, setup_.budget().capacity() - n);
    if (target <= tokens_.slots()) return std::nullopt;
    return Firing{KEEL_TRIGGER_INSERT, target};
}

std::optional<Firing> EvictionClock::due(StepKind kind, const KvCache &cache, int64_t seen,
                                         int64_t more) const {
    if (setup_.keeps_all()) return std::nullopt;
    const CacheConfig &config = setup_.config();
    const bool is_end = kind == StepKind::prefill_end;
    const BudgetNow now = budget(seen + more);
    if (is_end && config.at_prefill_end) return Firing{KEEL_TRIGGER_PREFILL_END, now.tokens};
    if (setup_.prefill_only() || (!is_end && !may_act(kind))) return std::nullopt;
    if (fires_every_n(more)) return Firing{KEEL_TRIGGER_EVERY_N, now.tokens};
    if (!config.at_budget || !is_over(now, cache, more)) return std::nullopt;
    const bool in_prompt = kind == StepKind::prefill_chunk || kind == StepKind::prefill_pause;
    return Firing{in_prompt ? KEEL_TRIGGER_CHUNK : KEEL_TRIGGER_BUDGET, now.tokens};
}

std::optional<Firing> EvictionClock::after_step(StepKind kind, const KvCache &cache, int64_t seen) {
    const std::optional<Firing> firing = due(kind, cache, seen);
    if (firing && firing->trigger == KEEL_TRIGGER_EVERY_N) since_every_n_ = 0;
    return firing;
}

bool EvictionClock::expects(StepKind kind, const KvCache &cache, int64_t seen) {
    looked_.reset();
    if (setup_.keeps_all()) return false;
    if (pressure_ && answers_pressure(kind)) looked_ = read_memory(kind, cache, seen);
    const std::optional<Firing> firing =
        looked_ && looked_->firing ? looked_->firing : due(kind, cache, seen);
    return firing && cache.total_length() > firing->target * static_cast<int64_t>(cache.rows());
}

bool EvictionClock::will_fire_next(const KvCache &cache, int64_t seen) const {
    if (setup_.keeps_all()) return false;
    if (pressure_) return true;
    if (!may_act(StepKind::decode)) return false;
    return due(StepKind::decode, cache, seen).has_value() ||
           (setup_.needs(KEEL_NEED_WINDOW_SCORES) &&
            due(StepKind::decode, cache, seen, 1).has_value());
}

int64_t EvictionClock::tokens_to_come(keel_trigger trigger, const KvCache &cache,
                                      int64_t seen) const {
    const CacheConfig &config = setup_.config();
    const int64_t room = std::max<int64_t>(setup_.shape().max_slots - cache.max_length(), 1);
    if (setup_.prefill_only()) return room;
    int64_t coming = room;
    if (config.at_budget)
        coming = std::min(coming, setup_.budget().at(seen, tokens_.prefix()).slack + 1);
    if (config.every_n) coming = std::min(coming, std::max<int64_t>(*config.every_n, 1));
    // The trigger fires only after the last token of a chunk, and more of the prompt follows.
    if (trigger == KEEL_TRIGGER_CHUNK) coming += step_tokens(setup_.executor(), setup_.shape()) - 1;
    return std::min(coming, room);
}

bool EvictionClock::makes_room(int64_t n, bool prompt, int64_t seen, std::string &why) const {
    const CacheConfig &config = setup_.config();
    const auto refuse = [&](const std::string &cure) {
        why += cure;
        return false;
    };
    if (setup_.keeps_all()) return refuse("");
    if (prompt && !setup_.acts_in_prefill()) {
        return refuse(fmt::format(
            "; policy {} does not evict before the prompt's end, so the whole prompt must fit: "
            "raise the limit, or choose a policy that evicts between the chunks of a prompt",
            config.policy.name));
    }
    if (!prompt && setup_.prefill_only())
        return refuse(fmt::format(
            "; policy {} evicts only at the prompt's end, and not while tokens are generated",
            config.policy.name));
    const int64_t capacity = setup_.budget().capacity();
    const BudgetNow now = budget(seen + n);
    const int64_t least = config.at_insert ? tokens_.slots() + 1 : now.tokens;
    const bool fires = config.at_insert || (config.at_budget && now.tokens < capacity) ||
                       (!prompt && config.every_n && now.tokens + *config.every_n < capacity);
    if (!fires) {
        return refuse(config.at_budget ? "; policy.budget is not below this limit: lower "
                                         "policy.budget, or add insert to policy.trigger.on"
                                       : "; add budget or insert to policy.trigger.on");
    }
    if (least + 1 > capacity)
        return refuse("; the protected tokens (policy.protect) alone fill the cache");
    return true;
}

int64_t EvictionClock::chunk_that_fits(int64_t n, const KvCache &cache, int64_t seen) const {
    if (!may_act(StepKind::prefill_chunk)) return n;
    const CacheConfig &config = setup_.config();
    if (!cache.fits(n)) {
        const int64_t capacity = setup_.budget().capacity();
        const int64_t kept =
            config.at_insert ? std::min(budget(seen).tokens, capacity - 1) : cache.max_length();
        n = std::clamp<int64_t>(capacity - kept, 1, n);
    }
    // A budget in MiB must hold at every moment.
    const int64_t most = config.at_budget ? setup_.budget().mib_slots() : 0;
    if (most > 0) {
        const auto heads = static_cast<int64_t>(cache.rows());
        n = std::clamp<int64_t>(most - (cache.total_length() + heads - 1) / heads, 1, n);
    }
    return n;
}

EvictionClock::PressureAnswer EvictionClock::look_at_memory(StepKind kind, const KvCache &cache,
                                                            int64_t seen) {
    if (!pressure_ || !answers_pressure(kind)) return {};
    if (looked_) return *std::exchange(looked_, std::nullopt);
    return read_memory(kind, cache, seen);
}

EvictionClock::PressureAnswer EvictionClock::read_memory(StepKind kind, const KvCache &cache,
                                                         int64_t seen) {
    PressureAnswer answer;
    const int64_t whole =
        std::min(setup_.budget().at(seen, tokens_.prefix()).tokens, setup_.budget().capacity());
    answer.change = pressure_->poll(seen, whole);
    const PressureState &state = pressure_->state();
    answer.state = &state;
    if (answer.change != PressureWatch::Change::none) {
        pressure_state_ = state.level > 0 ? std::make_shared<const PressureState>(state) : nullptr;
    }
    const BudgetNow now = budget(seen);
    if (answer.change == PressureWatch::Change::tighter ||
        (pressure_->cap() && is_over(now, cache)))
        answer.firing = Firing{KEEL_TRIGGER_PRESSURE, now.tokens, kind == StepKind::prefill_end};
    return answer;
}

void EvictionClock::reset() {
    since_every_n_ = 0;
    if (pressure_) pressure_->restart();
    pressure_state_.reset();
    looked_.reset();
}

void EvictionClock::copy_from(const EvictionClock &other, bool with_pressure) {
    since_every_n_ = other.since_every_n_;
    if (!with_pressure) return;
    if (pressure_ && other.pressure_) pressure_ = other.pressure_;
    pressure_state_ = other.pressure_state_;
}

} // namespace keel
