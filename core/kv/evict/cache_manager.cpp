#include "kv/evict/cache_manager.hpp"

#include "base/error.hpp"
#include "kv/evict/check_policy.hpp"
#include "kv/evict/kv_trace.hpp"

#include <algorithm>
#include <limits>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

} // namespace

CacheManager::CacheManager(CachePlan &plan, keel_buffer_kind placement)
    : plan_(plan), placement_(placement), prefix_(plan.config().protect_prefix),
      cache_(std::make_unique<KvCache>(plan.executor(), plan.shape(), placement)) {
    start();
}

CacheManager::CacheManager(CachePlan &plan, std::shared_ptr<KvArena> arena)
    : plan_(plan), placement_(arena->placement()), prefix_(plan.config().protect_prefix),
      cache_(KvCache::beside(std::move(arena))) {
    start();
}

CacheManager::~CacheManager() = default;

void CacheManager::start() {
    sequence_ = plan_.next_sequence();
    start_ = Clock::now();
    if (plan_.log() != nullptr)
        plan_.log()->open(); // empty, not an older run's, if nothing is ever evicted
    if (!plan_.keeps_all() || !plan_.gathered().empty())
        inputs_ = std::make_unique<PolicyInputs>(plan_, placement_);
    if (plan_.keeps_all()) return;
    start_extras();
    keel_policy_needs needs;
    policy_ = std::make_unique<PolicyState>(plan_.config().policy, plan_.host()->table(),
                                            plan_.geometry(), plan_.config().seed, needs);
    if (plan_.config().allocator.table != nullptr) {
        keel_allocator_needs allocator_needs;
        allocator_ = std::make_unique<AllocatorState>(
            plan_.config().allocator, plan_.host()->table(), plan_.geometry(), allocator_needs);
    }
    if (plan_.may_move_keys())
        rerotation_ = std::make_unique<Rerotation>(plan_, placement_, prefix_);
    keep_.resize(plan_.shape().layers);
    records_.reserve(plan_.shape().layers);
}

bool CacheManager::may_act(StepKind kind) const {
    if (plan_.keeps_all()) return false;
    return kind == StepKind::decode ? !plan_.prefill_only() : plan_.acts_in_prefill();
}

bool CacheManager::is_over(const BudgetNow &budget) const {
    const KvShape &s = plan_.shape();
    return held_slots() > (budget.tokens + budget.slack) * s.layers * s.kv_heads;
}

int64_t CacheManager::held_slots() const {
    const KvShape &s = plan_.shape();
    int64_t held = 0;
    for (uint32_t l = 0; l < s.layers; ++l) {
        for (uint32_t h = 0; h < s.kv_heads; ++h)
            held += cache_->length(l, h);
    }
    return held;
}

bool CacheManager::can_take(int64_t n, bool prompt, std::string *why) const {
    std::string limit;
    if (prompt && !can_replay(n, why)) return false;
    if (cache_->fits(n, &limit)) return true;
    const CacheConfig &config = plan_.config();
    const auto refuse = [&](const std::string &cure) {
        if (why != nullptr) *why = limit + cure;
        return false;
    };
    if (plan_.keeps_all()) return refuse("");
    if (prompt && !plan_.acts_in_prefill()) {
        return refuse(fmt::format(
            "; policy {} does not evict before the prompt's end, so the whole prompt has to "
            "fit: raise the limit, or choose a policy that acts between chunks",
            config.policy.name));
    }
    if (!prompt && plan_.prefill_only())
        return refuse(
            fmt::format("; policy {} evicts at the prompt's end only", config.policy.name));
    const int64_t capacity = plan_.budget().capacity();
    const BudgetNow budget = budget_now(seen_ + n);
    const int64_t least = config.at_insert ? protected_slots() + 1 : budget.tokens;
    const bool fires = config.at_insert || (config.at_budget && budget.tokens < capacity) ||
                       (!prompt && config.every_n && budget.tokens + *config.every_n < capacity);
    if (!fires) {
        return refuse(
            config.at_budget
                ? "; policy.budget is no smaller than that limit: lower it, or add insert "
                  "to policy.trigger.on"
                : "; add budget or insert to policy.trigger.on");
    }
    if (least + 1 > capacity)
        return refuse("; the protected tokens (policy.protect) alone fill it");
    return true;
}

// Has a policy that replays the prompt the room for it, behind n more tokens?
bool CacheManager::can_replay(int64_t n, std::string *why) const {
    if ((plan_.needs().needs & KEEL_NEED_REPLAY) == 0 || replayer_ == nullptr) return true;
    const int64_t room = Replay::room(plan_, *replayer_, seen_ + n);
    if (!cache_->fits(n) || cache_->fits(n + room, why)) return true;
    if (why != nullptr) {
        *why = fmt::format("policy {} has the model repeat the prompt, which takes room for {} "
                           "tokens beside it for a "
                           "while: {}",
                           plan_.config().policy.name, room, *why);
    }
    return false;
}

int64_t CacheManager::next_chunk(int64_t left, int64_t preferred) const {
    int64_t n = std::min(left, std::max<int64_t>(preferred, 1));
    if (may_act(StepKind::prefill_chunk) && !cache_->fits(n)) {
        const int64_t capacity = plan_.budget().capacity();
        const int64_t kept = plan_.config().at_insert
                                 ? std::min(budget_now(seen_).tokens, capacity - 1)
                                 : cache_->max_length();
        n = std::clamp<int64_t>(capacity - kept, 1, n);
    }
    const int64_t most = plan_.config().at_budget ? plan_.budget().mib_slots() : 0;
    if (most > 0 && may_act(StepKind::prefill_chunk)) {
        const int64_t heads = int64_t{plan_.shape().layers} * plan_.shape().kv_heads;
        n = std::clamp<int64_t>(most - (held_slots() + heads - 1) / heads, 1, n);
    }
    const int64_t window = plan_.needs().window;
    const int64_t after = left - n;
    if (after > 0 && after < window) n = std::max<int64_t>(1, std::min(n, left - window));
    // Pieces whose attention a policy reads are not cut in two.
    if (n < left && plan_.gathered().chunks) {
        const int64_t over = (seen_ + n) % plan_.gathered().chunks->tokens;
        if (over < n) n -= over;
    }
    return n;
}

std::span<const EvictionRecord> CacheManager::before_append(int64_t n, StepKind kind) {
    std::string why;
    if (cache_->fits(n, &why)) return {};
    if (may_act(kind) && plan_.config().at_insert) {
        const int64_t target = std::min(budget_now(seen_).tokens, plan_.budget().capacity() - n);
        if (target > protected_slots()) {
            const auto records = run_eviction(KEEL_TRIGGER_INSERT, target);
            if (cache_->fits(n, &why)) return records;
        }
    } else if (may_act(kind)) {
        why += "; add insert to policy.trigger.on to evict before that";
    }
    throw_error(ErrorKind::resource, "{}", why);
}

std::span<const int32_t> CacheManager::next_positions(int64_t n) {
    if (seen_ + n > std::numeric_limits<int32_t>::max()) {
        throw_error(ErrorKind::resource, "the sequence has {} tokens; positions end at {}", seen_,
                    std::numeric_limits<int32_t>::max());
    }
    positions_.resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
        positions_[static_cast<size_t>(i)] = static_cast<int32_t>(seen_ + i);
    return positions_;
}

void CacheManager::append(int64_t n) {
    note_append(n);
    cache_->append(next_positions(n), n);
    count_append(n);
}

void CacheManager::count_append(int64_t n) {
    seen_ += n;
    since_every_n_ += n;
    tail_ += n;
    peak_bytes_ = peak_bytes();
    trace_cache(plan_.executor().stream().trace(), *cache_, seen_);
}

StepTap *CacheManager::begin_step(int64_t n, StepKind kind) {
    return inputs_ ? inputs_->begin_step(*cache_, seen_ - n, n, kind != StepKind::decode) : nullptr;
}

std::span<const EvictionRecord> CacheManager::after_step(StepKind kind) {
    if (plan_.keeps_all()) return {};
    const CacheConfig &config = plan_.config();
    if (pressure_ && (may_act(kind) || kind == StepKind::prefill_end)) {
        if (const auto records = answer_pressure(); !records.empty()) return records;
    }
    const BudgetNow budget = budget_now(seen_);
    if (kind == StepKind::prefill_end && config.at_prefill_end)
        return run_eviction(KEEL_TRIGGER_PREFILL_END, budget.tokens);
    if (kind != StepKind::prefill_end && !may_act(kind)) return {};
    if (plan_.prefill_only()) return {};
    if (fires_every_n()) {
        since_every_n_ = 0;
        return run_eviction(KEEL_TRIGGER_EVERY_N, budget.tokens);
    }
    if (!config.at_budget || !is_over(budget)) return {};
    return run_eviction(kind == StepKind::prefill_chunk ? KEEL_TRIGGER_CHUNK : KEEL_TRIGGER_BUDGET,
                        budget.tokens);
}

bool CacheManager::can_append_ahead() const {
    if (!plan_.gathered().empty() || seen_ >= std::numeric_limits<int32_t>::max() ||
        !cache_->has_slots(1))
        return false;
    if (!may_act(StepKind::decode))
        return true; // as after_step() does, which looks at memory and triggers else
    if (pressure_ || fires_every_n()) return false;
    return !plan_.config().at_budget || !is_over(budget_now(seen_));
}

void CacheManager::append_ahead() {
    cache_->append(next_positions(1), 1);
}

void CacheManager::keep_ahead() {
    note_append(1, 1);
    count_append(1);
}

void CacheManager::drop_ahead() {
    cache_->truncate(1);
}

std::span<const EvictionRecord> CacheManager::evict() {
    if (plan_.keeps_all()) return {};
    return run_eviction(KEEL_TRIGGER_BUDGET, budget_now(seen_).tokens);
}

bool CacheManager::can_truncate(int64_t n, std::string *why) const {
    if (n < 0 || n > tail_) {
        if (why != nullptr)
            *why = fmt::format(
                "{} tokens cannot be taken back: of the last ones {} are still in the cache", n,
                tail_);
        return false;
    }
    if (!inputs_ || inputs_->can_truncate(n, seen_)) return true;
    if (why != nullptr) {
        *why = fmt::format(
            "{} tokens cannot be taken back: policy {} goes by sums that they are part of", n,
            plan_.config().policy.name);
    }
    return false;
}

void CacheManager::truncate(int64_t n) {
    std::string why;
    if (!can_truncate(n, &why)) throw_error(ErrorKind::usage, "{}", why);
    cache_->truncate(n);
    if (inputs_) inputs_->truncate(*cache_, n, seen_);
    seen_ -= n;
    tail_ -= n;
    since_every_n_ = std::max<int64_t>(0, since_every_n_ - n);
    if (rerotation_) rerotation_->truncate(*cache_);
    if (policy_) policy_->truncate(seen_);
    pins_.truncate(seen_);
    if (numbers_) numbers_->truncate(n);
}

void CacheManager::reseed(uint64_t seed) {
    if (!policy_) return;
    if (evictions_ != 0)
        throw_error(ErrorKind::internal, "another seed for policy {} behind an eviction",
                    plan_.config().policy.name);
    keel_policy_needs needs;
    policy_ = std::make_unique<PolicyState>(plan_.config().policy, plan_.host()->table(),
                                            plan_.geometry(), seed, needs);
}

void CacheManager::reset() {
    cache_->clear();
    peak_bytes_ = policy_peak_ = 0;
    seen_ = tail_ = since_every_n_ = 0;
    evictions_ = evicted_slots_ = evicted_bytes_ = 0;
    eviction_us_ = 0;
    start_ = Clock::now();
    if (policy_) policy_->reset();
    if (inputs_) inputs_->reset();
    pins_.clear();
    if (numbers_) numbers_->clear();
    if (pressure_) pressure_->restart();
    pressure_facts_.reset();
    set_prefix(plan_.config().protect_prefix);
}

void CacheManager::protect_prefix(int64_t tokens, std::string_view what) {
    if (seen_ != 0)
        throw_error(ErrorKind::internal, "a prefix to be protected behind {} tokens", seen_);
    const int64_t prefix = std::max(tokens, plan_.config().protect_prefix);
    if (!plan_.keeps_all()) // else the prefix is for forks
        check_prefix(plan_.config(), plan_.budget(), prefix, what);
    set_prefix(prefix);
}

// Of an empty cache, or of one whose keys were never moved.
void CacheManager::set_prefix(int64_t prefix) {
    prefix_ = prefix;
    if (rerotation_) rerotation_ = std::make_unique<Rerotation>(plan_, placement_, prefix_);
}

} // namespace keel
