// Copies of a sequence's cache: under the same policy, or under others, so that an experiment's arms share one prefill.
#include "kv/evict/cache_manager.hpp"

#include "base/error.hpp"
#include "kv/evict/check_policy.hpp"

namespace keel {

CacheManager::CacheManager(CacheManager &parent, CachePlan &plan, std::unique_ptr<KvCache> cache)
    : plan_(plan), placement_(parent.placement_), prefix_(parent.prefix_), cache_(std::move(cache)),
      seen_(parent.seen_), since_every_n_(parent.since_every_n_), tail_(parent.tail_) {
    const bool is_same = &plan == &parent.plan_;
    if (!is_same)
        prefix_ = plan.config().protect_system_prompt
                      ? std::max(parent.prefix_, plan.config().protect_prefix)
                      : plan.config().protect_prefix;
    start();
    if (inputs_ && parent.inputs_) inputs_->copy_from(*parent.inputs_, *cache_);
    if (rerotation_ && parent.rerotation_ && parent.has_evicted())
        rerotation_ = parent.rerotation_->fork(plan, *cache_);
    if (is_same) {
        copy_extras(parent);
        if (parent.policy_) policy_ = parent.policy_->fork();
        if (parent.rerotation_) rerotation_ = parent.rerotation_->fork(plan, *cache_);
    } else if (!plan.keeps_all()) {
        adopt_extras(parent);
    }
}

std::unique_ptr<CacheManager> CacheManager::fork() {
    return std::unique_ptr<CacheManager>(new CacheManager(*this, plan_, cache_->fork()));
}

std::unique_ptr<CacheManager> CacheManager::fork_into(CachePlan &plan) {
    if (&plan == &plan_) return fork();
    check_fork(plan);
    return std::unique_ptr<CacheManager>(new CacheManager(*this, plan, cache_->fork()));
}

bool CacheManager::has_evicted() const {
    const KvShape &s = plan_.shape();
    for (uint32_t l = 0; l < s.layers; ++l) {
        for (uint32_t h = 0; h < s.kv_heads; ++h) {
            if (cache_->length(l, h) != seen_) return true;
        }
    }
    return false;
}

void CacheManager::check_fork(const CachePlan &plan) const {
    const std::string &name = plan.config().policy.name;
    if (!(plan.shape() == plan_.shape()) || &plan.executor() != &plan_.executor())
        throw_error(ErrorKind::internal, "a fork into a cache of another shape, under policy {}",
                    name);
    if (seen_ > 0) {
        if (const char *need = plan_.gathered().missing(plan.gathered()); need != nullptr) {
            throw_error(ErrorKind::input,
                        "policy {} needs {}, which was not collected while the cache was filled "
                        "under policy {}; "
                        "prefill under a plan that collects it",
                        name, need, plan_.config().policy.name);
        }
    }
    if (plan.keeps_all() || !has_evicted()) {
        const int64_t least = plan.config().protect_prefix;
        const int64_t prefix =
            plan.config().protect_system_prompt ? std::max(prefix_, least) : least;
        if (!plan.keeps_all())
            check_prefix(plan.config(), plan.budget(), prefix, "the protected prefix");
        return;
    }
    const bool moves = plan_.may_move_keys();
    if (moves != plan.may_move_keys() || (moves && prefix_ != plan.config().protect_prefix)) {
        throw_error(ErrorKind::input,
                    "policy.positions: policies {} and {} treat the positions of a cache that "
                    "slots are gone from "
                    "differently; fork it before the first eviction, or give both the same "
                    "policy.positions and "
                    "policy.protect",
                    plan_.config().policy.name, name);
    }
    if (!plan.config().pinned.empty()) {
        throw_error(ErrorKind::input,
                    "policy.protect: tokens cannot be pinned under policy {} in a cache that slots "
                    "are gone from; fork it before the first eviction",
                    name);
    }
}

// Under another plan: its pins, and which token is where.
void CacheManager::adopt_extras(const CacheManager &parent) {
    const KvShape &s = plan_.shape();
    if (!parent.has_evicted()) {
        pins_.note_append(0, seen_, [](size_t) { return int64_t{0}; });
        if (numbers_) numbers_->append(0, seen_);
        return;
    }
    for (uint32_t l = 0; numbers_ && l < s.layers; ++l) {
        for (uint32_t h = 0; h < s.kv_heads; ++h) {
            const size_t row = size_t{l} * s.kv_heads + h;
            numbers_->set(row,
                          parent.numbers_ ? parent.numbers_->row(row) : cache_->positions(l, h));
        }
    }
}

} // namespace keel
