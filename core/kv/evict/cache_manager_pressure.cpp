// What a cache manager does beside its policy: it answers memory pressure, and keeps pinned tokens and the log's token numbers.
#include "kv/evict/cache_manager.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "device/device.hpp"
#include "kv/evict/check_policy.hpp"

#include <algorithm>

namespace keel {

void CacheManager::start_extras() {
    const CacheConfig &config = plan_.config();
    const size_t rows = size_t{plan_.shape().layers} * plan_.shape().kv_heads;
    pins_ = PinnedTokens(rows, config.pinned);
    const bool is_logged = plan_.log() != nullptr && config.log_positions;
    const bool replays =
        (plan_.needs().needs & KEEL_NEED_REPLAY) != 0; // piece by piece of the text
    if ((is_logged || replays) && plan_.may_move_keys())
        numbers_ = std::make_unique<TokenNumbers>(rows);
    if (config.pressure) {
        pressure_ = std::make_unique<PressureWatch>(
            *config.pressure, config.monitor ? config.monitor : system_monitor());
    }
}

void CacheManager::copy_extras(const CacheManager &parent) {
    pins_ = parent.pins_;
    if (numbers_ && parent.numbers_) *numbers_ = *parent.numbers_;
    if (pressure_ && parent.pressure_) *pressure_ = *parent.pressure_;
    pressure_facts_ = parent.pressure_facts_;
}

void CacheManager::load_extras(StateReader &in) {
    const uint32_t kv_heads = plan_.shape().kv_heads;
    const auto length = [&](size_t row) {
        return cache_->length(static_cast<uint32_t>(row / kv_heads),
                              static_cast<uint32_t>(row % kv_heads));
    };
    pins_.load(in, seen_, length);
    if (!plan_.keeps_all() && protected_slots() + 1 > budget_now(seen_).tokens)
        in.fail("more protected and pinned tokens than this pipeline's budget holds");
    if (!numbers_) return;
    // Sessions do not say; where keys were rotated these are positions.
    for (size_t row = 0; row < size_t{plan_.shape().layers} * kv_heads; ++row)
        numbers_->set(row, cache_->positions(static_cast<uint32_t>(row / kv_heads),
                                             static_cast<uint32_t>(row % kv_heads)));
}

uint64_t CacheManager::policy_bytes() const {
    uint64_t sum = (inputs_ ? inputs_->bytes() : 0) + (rerotation_ ? rerotation_->work_bytes() : 0);
    for (const Answer &a : answers_)
        sum += held_bytes(a.lengths) + held_bytes(a.positions) + held_bytes(a.mask) +
               held_bytes(a.stay) + held_bytes(a.held) + held_bytes(a.scores) +
               held_bytes(a.listed) + held_bytes(a.counts);
    return sum;
}

// ---- pinned tokens -------------------------------------------------------------------------------------------------

// Where tokens that are in the cache lie, per head. Throws Error(usage) if they are not all there.
std::vector<int32_t> CacheManager::first_slots(int64_t from, int64_t to) const {
    const KvShape &s = plan_.shape();
    std::vector<int32_t> first;
    const bool in_tail = from >= seen_ - tail_;
    for (uint32_t l = 0; l < s.layers; ++l) {
        for (uint32_t h = 0; h < s.kv_heads; ++h) {
            const int64_t length = cache_->length(l, h);
            int64_t slot = length - (seen_ - from);
            if (!in_tail) { // keys that were never rotated say their number
                const auto positions = cache_->positions(l, h);
                const auto at = std::lower_bound(positions.begin(), positions.end(), from);
                slot = at - positions.begin();
                const int64_t count = std::min(to, seen_) - from;
                const bool is_whole =
                    !plan_.may_move_keys() && slot + count <= length &&
                    positions[static_cast<size_t>(slot)] == from &&
                    positions[static_cast<size_t>(slot + count - 1)] == from + count - 1;
                if (!is_whole) {
                    throw_error(ErrorKind::usage,
                                "tokens {} to {} cannot be pinned any more: some of them were "
                                "evicted; pin them "
                                "before that",
                                from, to - 1);
                }
            }
            first.push_back(static_cast<int32_t>(slot));
        }
    }
    return first;
}

void CacheManager::pin(int64_t from, int64_t to, std::string_view what) {
    if (from < 0 || from >= to || to > (int64_t{1} << 30))
        throw_error(ErrorKind::internal, "a pin of tokens {} to {}", from, to);
    if (plan_.keeps_all()) return;
    const TokenRun run = {static_cast<int32_t>(from), static_cast<int32_t>(to)};
    check_pins(plan_.config(), plan_.budget(), seen_, prefix_, pins_.count_with(prefix_, run),
               what);
    if (from >= seen_) {
        pins_.add(run);
    } else {
        pins_.add(run, first_slots(from, to));
    }
}

void CacheManager::note_append(int64_t n, int64_t there) {
    const uint32_t kv_heads = plan_.shape().kv_heads;
    if (!pins_.empty()) {
        pins_.note_append(seen_, n, [&](size_t row) {
            return cache_->length(static_cast<uint32_t>(row / kv_heads),
                                  static_cast<uint32_t>(row % kv_heads)) -
                   there;
        });
    }
    if (numbers_) numbers_->append(seen_, n);
}

void CacheManager::note_compact(uint32_t layer, const KeepLists &keep) {
    const size_t first = size_t{layer} * plan_.shape().kv_heads;
    for (size_t h = 0; h < keep.size(); ++h) {
        pins_.note_compact(first + h, keep[h]);
        if (numbers_) numbers_->note_compact(first + h, keep[h]);
    }
}

// What the log wants to know beside the counts.
void CacheManager::note_kept(EvictionRecord &record) const {
    for (uint32_t h = 0; h < record.heads; ++h) {
        record.kept.push_back(cache_->length(record.layer, h));
        if (!plan_.config().log_positions) continue;
        record.tokens_kept.push_back(
            token_runs(numbers_ ? numbers_->row(size_t{record.layer} * record.heads + h)
                                : cache_->positions(record.layer, h)));
    }
}

// ---- memory pressure -----------------------------------------------------------------------------------------------

BudgetNow CacheManager::budget_now(int64_t seen) const {
    const CacheConfig &config = plan_.config();
    BudgetNow now = plan_.budget().at(seen, prefix_);
    const int64_t pinned = pins_.count(prefix_);
    if (config.budget_unit == BudgetUnit::none) now.tokens += pinned - pinned_slots(config);
    if (config.budget_unit == BudgetUnit::ratio)
        now.tokens = std::max(now.tokens, protected_slots() + 1);
    if (!pressure_) return now;
    if (const auto cap = pressure_->cap()) {
        const int64_t least = std::max<int64_t>(protected_slots() + 1, plan_.needs().least_budget);
        now.tokens = std::min(now.tokens, std::max(*cap, least));
        now.slack = std::min(now.slack, now.tokens / 8);
    }
    return now;
}

std::span<const EvictionRecord> CacheManager::answer_pressure() {
    const int64_t whole =
        std::min(plan_.budget().at(seen_, prefix_).tokens, plan_.budget().capacity());
    const PressureWatch::Change change = pressure_->poll(seen_, whole);
    const PressureFacts &facts = pressure_->facts();
    if (change != PressureWatch::Change::none)
        pressure_facts_ = facts.step > 0 ? std::make_shared<const PressureFacts>(facts) : nullptr;
    const BudgetNow now = budget_now(seen_);
    const uint64_t freed = evicted_bytes_;
    std::span<const EvictionRecord> records;
    if (change == PressureWatch::Change::tighter || (pressure_->cap() && is_over(now)))
        records = run_eviction(KEEL_TRIGGER_PRESSURE, now.tokens);
    if (change == PressureWatch::Change::none) return records;
    if (change == PressureWatch::Change::looser) {
        log().warn("memory is back: {}; the KV cache may hold {} slots per head again, {:.0f}% of "
                   "its budget",
                   facts.why, now.tokens, 100 * facts.share);
        return records;
    }
    // What backend and allocator keep for later is of no use to others. Arenas that were outgrown are held by ops that move their rows.
    plan_.executor().stream().wait();
    plan_.executor().device().trim();
    return_free_memory();
    const bool is_last = facts.step == plan_.config().pressure->steps.size();
    log().warn("memory is short: {}; the KV cache goes down to {} slots per head, {:.0f}% of its "
               "budget: {} "
               "freed{}",
               facts.why, now.tokens, 100 * facts.share, format_bytes(evicted_bytes_ - freed),
               is_last ? "; this is the last step, it cannot give back more" : "");
    return records;
}

} // namespace keel
