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

KeptSessions::KeptSessions(Pipeline &pipeline, size_t most) : most_(most) {
    if (most > 0) full_ = &pipeline.policies().add_shared_prefill({});
}

bool KeptSessions::serves(const PolicySetup &plan) {
    if (plan.keeps_all()) return true;
    Collected early = plan.collected();
    early.window = 0; // only the queries at the end of the prompt
    return !plan.acts_in_prefill() && early.empty() && !plan.config().pressure;
}

void KeptSessions::add(std::unique_ptr<Session> session, PolicyChoices::Lease policy,
                       uint64_t freed) {
    if (most_ == 0 || !policy->plan->keeps_all() || session->is_broken()) return;
    try {
        session->truncate(0); // forgets the results of the last step, which a fork would copy
        keep(std::move(session), std::move(policy), freed);
    } catch (const Error &error) {
        log().debug("the cache of a request is not kept: {}", error.what());
    }
}

void KeptSessions::add_copy(Session &session) {
    const std::span<const int32_t> tokens = session.history();
    const auto has_them = [&](const Kept &kept) {
        return equal_tokens(kept.session->history(), tokens) == std::ssize(tokens);
    };
    if (most_ == 0 || session.tokens() < least_tokens || !serves(session.cache().setup()) ||
        std::ranges::any_of(kept_, has_them))
        return;
    try {
        if (session.kv_bytes() <= limit_) keep(session.fork(*full_), nullptr, 0);
    } catch (const Error &error) {
        log().debug("the cache of a prompt is not kept: {}", error.what());
    }
}

void KeptSessions::keep(std::unique_ptr<Session> session, PolicyChoices::Lease policy,
                        uint64_t freed) {
    const uint64_t bytes = session->held_bytes(), limit = limit_ + freed;
    if (session->tokens() < least_tokens || bytes > limit) return;
    // A session that has only the first tokens of this one is not needed any more.
    std::erase_if(kept_, [&](const Kept &kept) {
        return equal_tokens(kept.session->history(), session->history()) == kept.session->tokens();
    });
    if (kept_.size() == most_) kept_.erase(kept_.begin());
    shrink_to(limit - bytes);
    kept_.push_back({std::move(session), std::move(policy), bytes});
}

std::unique_ptr<Session> KeptSessions::fork_for(PolicySetup &plan,
                                                std::span<const int32_t> prompt) {
    if (kept_.empty() || !serves(plan)) return nullptr;
    const int64_t left = std::max<int64_t>(1, plan.collected().window);
    auto best = kept_.end();
    int64_t most = least_tokens - 1;
    for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
        const Session &session = *kept->session;
        const int64_t equal =
            std::min(equal_tokens(session.history(), prompt), std::ssize(prompt) - left);
        if (equal <= most ||
            !kept->session->sequence().cache.can_truncate(session.tokens() - equal))
            continue;
        most = equal;
        best = kept;
    }
    if (best == kept_.end()) return nullptr;
    try {
        std::unique_ptr<Session> fork = best->session->fork();
        fork->truncate(fork->tokens() - most);
        if (!plan.keeps_all()) fork = fork->fork(plan, std::ssize(prompt) - most);
        std::rotate(best, best + 1, kept_.end());
        return fork;
    } catch (const Error &error) {
        log().debug("the cache of an earlier request cannot be used: {}", error.what());
        return nullptr;
    }
}

void KeptSessions::limit_to(uint64_t bytes) {
    limit_ = bytes;
    shrink_to(bytes);
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
