#include "schedule/kept_sessions.hpp"

#include "base/error.hpp"
#include "base/log.hpp"

#include <algorithm>

namespace keel {
namespace {

int64_t equal_tokens(std::span<const int32_t> a, std::span<const int32_t> b) {
    return std::ranges::mismatch(a, b).in1 - a.begin();
}

} // namespace

void KeptSessions::add(std::unique_ptr<Session> session, PolicyChoices::Lease policy) {
    const bool is_useful = most_ > 0 && policy->plan->keeps_all() && !session->is_broken() &&
                           session->tokens() >= least_tokens;
    if (!is_useful) return;
    try {
        session->truncate(0); // forgets the results of the last step, which a fork would copy
        // A session that has only the first tokens of this one is not needed any more.
        std::erase_if(kept_, [&](const Kept &kept) {
            return kept.policy->plan == policy->plan &&
                   equal_tokens(kept.session->history(), session->history()) ==
                       kept.session->tokens();
        });
        if (kept_.size() == most_) kept_.erase(kept_.begin());
        const uint64_t bytes = session->held_bytes();
        kept_.push_back({std::move(session), std::move(policy), bytes});
    } catch (const Error &error) {
        log().debug("the cache of a request is not kept: {}", error.what());
    }
}

std::unique_ptr<Session> KeptSessions::fork_for(const PolicySetup &plan,
                                                std::span<const int32_t> prompt) {
    auto best = kept_.end();
    int64_t most = least_tokens - 1;
    for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
        if (kept->policy->plan != &plan) continue;
        const int64_t equal =
            std::min(equal_tokens(kept->session->history(), prompt), std::ssize(prompt) - 1);
        const int64_t rest = kept->session->tokens() - equal;
        if (equal <= most || !kept->session->sequence().cache.can_truncate(rest)) continue;
        most = equal;
        best = kept;
    }
    if (best == kept_.end()) return nullptr;
    try {
        std::unique_ptr<Session> fork = best->session->fork();
        fork->truncate(fork->tokens() - most);
        std::rotate(best, best + 1, kept_.end());
        return fork;
    } catch (const Error &error) {
        log().debug("the cache of an earlier request cannot be used: {}", error.what());
        return nullptr;
    }
}

void KeptSessions::shrink_to(uint64_t bytes) {
    uint64_t all = 0;
    for (const Kept &kept : kept_) all += kept.bytes;
    while (all > bytes) {
        all -= kept_.front().bytes;
        kept_.erase(kept_.begin());
    }
}

} // namespace keel
