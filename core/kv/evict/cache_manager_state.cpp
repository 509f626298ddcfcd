// Saving a sequence's cache with its books, and taking it in again.
#include "kv/evict/cache_manager.hpp"

#include "base/error.hpp"
#include "kv/evict/check_policy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace keel {

void CacheManager::save(StateWriter &out) const {
    out.put(seen_);
    out.put(since_every_n_);
    out.put(tail_);
    out.put(prefix_);
    out.put(evictions_);
    out.put(evicted_slots_);
    out.put(evicted_bytes_);
    out.put(eviction_us_);
    cache_->save(out);
    if (rerotation_) rerotation_->save(out);
    if (policy_) policy_->save(out);
    pins_.save(out);
    if (inputs_) inputs_->save(out, *cache_);
    const bool replays = (plan_.needs().needs & KEEL_NEED_REPLAY) != 0 && numbers_ != nullptr;
    for (size_t row = 0; replays && row < size_t{plan_.shape().layers} * plan_.shape().kv_heads;
         ++row)
        out.put_all<int32_t>(numbers_->row(row));
}

void CacheManager::load(StateReader &in) {
    reset();
    try {
        load_books(in);
        cache_->load(in, seen_);
        check_lengths(in);
        if (rerotation_) rerotation_->load(in, *cache_);
        if (policy_) policy_->load(in);
        load_extras(in);
        if (inputs_) inputs_->load(in, *cache_, seen_);
        load_numbers(in);
    } catch (...) {
        reset();
        throw;
    }
}

// Which token is in each slot, for a replay.
void CacheManager::load_numbers(StateReader &in) {
    const KvShape &s = plan_.shape();
    if ((plan_.needs().needs & KEEL_NEED_REPLAY) == 0 || !numbers_) return;
    std::vector<int32_t> numbers;
    for (size_t row = 0; row < size_t{s.layers} * s.kv_heads; ++row) {
        const int64_t n = cache_->length(static_cast<uint32_t>(row / s.kv_heads),
                                         static_cast<uint32_t>(row % s.kv_heads));
        in.get_all<int32_t>(numbers, static_cast<uint64_t>(n), "tokens in slots");
        int64_t last = -1;
        for (const int32_t number : numbers) {
            if (number <= last || number >= seen_)
                in.fail("tokens in slots: expected rising ones below {}, found {} after {}", seen_,
                        number, last);
            last = number;
        }
        numbers_->set(row, numbers);
    }
}

void CacheManager::load_books(StateReader &in) {
    constexpr int64_t most = std::numeric_limits<int32_t>::max();
    seen_ = in.get_count("tokens", 0, most);
    since_every_n_ = in.get_count("tokens since the last eviction", 0, seen_);
    tail_ = in.get_count("newest tokens", 0, seen_);
    const int64_t least = plan_.config().protect_prefix;
    const int64_t prefix = in.get_count("protected tokens", 0, plan_.shape().max_slots);
    if (!plan_.keeps_all()) {
        if (prefix != least && !plan_.config().protect_system_prompt) {
            in.fail("saved with {} protected tokens at the front, this pipeline protects {} "
                    "(policy.protect.prefix)",
                    prefix, least);
        }
        check_prefix(plan_.config(), plan_.budget(), std::max(prefix, least), "a saved prefix");
        set_prefix(prefix);
    }
    evictions_ = in.get<uint64_t>("evictions");
    evicted_slots_ = in.get<uint64_t>("evicted tokens");
    evicted_bytes_ = in.get<uint64_t>("evicted bytes");
    eviction_us_ = in.get<double>("microseconds of evictions");
    if (!(eviction_us_ >= 0) || !std::isfinite(eviction_us_))
        in.fail("evictions took {} us", eviction_us_);
}

// What steps, evictions and truncate() rely on.
void CacheManager::check_lengths(const StateReader &in) const {
    const KvShape &s = plan_.shape();
    const keel_granularity granularity = plan_.needs().granularity;
    for (uint32_t l = 0; l < s.layers; ++l) {
        for (uint32_t h = 0; h < s.kv_heads; ++h) {
            const int64_t length = cache_->length(l, h);
            if (length < tail_ || (plan_.keeps_all() && length != seen_))
                in.fail("layer {} head {} has {} slots of {} tokens", l, h, length, seen_);
            // Positions rise and the newest tokens are there, so the last ones end at the newest.
            const auto positions = cache_->positions(l, h);
            for (int64_t i = 1; i <= tail_; ++i) {
                if (positions[static_cast<size_t>(length - i)] != seen_ - i)
                    in.fail("layer {} head {}: a newest token is missing", l, h);
            }
            const bool shared =
                !plan_.keeps_all() &&
                (granularity == KEEL_KEEP_TOKEN || (h > 0 && granularity == KEEL_KEEP_LAYER) ||
                 (h > 0 && granularity == KEEL_KEEP_HEAD_EQUAL && !plan_.allocator().ragged));
            const int64_t other =
                granularity == KEEL_KEEP_TOKEN ? cache_->length(0, 0) : cache_->length(l, 0);
            if (shared && length != other)
                in.fail("layer {} head {} has {} slots, policy {} keeps {} there", l, h, length,
                        plan_.config().policy.name, other);
        }
    }
}

} // namespace keel
