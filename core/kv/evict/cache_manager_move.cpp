// A sequence's cache goes on on another device: under a plan of the same policy, made for that one.
#include "kv/evict/cache_manager.hpp"

#include "base/error.hpp"
#include "device/device.hpp"

namespace keel {

std::unique_ptr<CacheManager> CacheManager::begin_move(CachePlan &plan,
                                                       keel_buffer_kind placement) {
    if (plan.shape().layers != plan_.shape().layers ||
        plan.config().policy.name != plan_.config().policy.name)
        throw_error(ErrorKind::internal, "a cache under policy {} moves to policy {}",
                    plan_.config().policy.name, plan.config().policy.name);
    auto to = std::make_unique<CacheManager>(plan, placement);
    to->set_prefix(prefix_);
    to->cache_->reserve_like(*cache_);
    if (inputs_ && to->inputs_) to->inputs_->take_over(*inputs_, *to->cache_);
    if (rerotation_) to->rerotation_ = rerotation_->take_over(plan, *to->cache_, placement);
    return to;
}

uint64_t CacheManager::finish_move(CacheManager &to) {
    uint64_t bytes = 0;
    for (uint32_t l = 0; l < plan_.shape().layers; ++l) {
        bytes += to.cache_->take_rows(*cache_, l);
        cache_->drop_rows(l);
    }
    to.plan_.executor().stream().wait();
    // What remembers lives on the host and moves as it is. It refers to this one's plan, which lives as long as the pipeline.
    to.policy_ = std::move(policy_);
    to.allocator_ = std::move(allocator_);
    to.pins_ = std::move(pins_);
    to.numbers_ = std::move(numbers_);
    to.pressure_ = std::move(pressure_);
    to.pressure_facts_ = std::move(pressure_facts_);
    to.start_ = start_;
    to.sequence_ = sequence_;
    to.seen_ = seen_;
    to.since_every_n_ = since_every_n_;
    to.tail_ = tail_;
    to.evictions_ = evictions_;
    to.evicted_slots_ = evicted_slots_;
    to.evicted_bytes_ = evicted_bytes_;
    to.eviction_us_ = eviction_us_;
    return bytes;
}

void CacheManager::begin_like(const CacheManager &other) {
    reset();
    set_prefix(other.prefix_);
    pins_ = other.pins_.to_come();
    sequence_ = other.sequence_;
    start_ = other.start_;
    evictions_ = other.evictions_;
    evicted_slots_ = other.evicted_slots_;
    evicted_bytes_ = other.evicted_bytes_;
    eviction_us_ = other.eviction_us_;
}

} // namespace keel
