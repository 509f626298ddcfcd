#pragma once

#include "run/session.hpp"
#include "schedule/policy_choices.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace keel {

// Sessions of requests that have ended. A later request whose prompt begins with the same tokens
// forks one of them, so it shares the blocks of these tokens and does not read them again. Only
// sessions whose policy keeps all tokens are kept: an eviction, and sums that a policy collects,
// depend on all tokens of a request. Not thread-safe.
class KeptSessions {
  public:
    static constexpr int64_t least_tokens = 16; // fewer equal tokens are not worth a fork

    // `most`: the most sessions that are kept. 0: none.
    explicit KeptSessions(size_t most) : most_(most) {}

    // Keeps a session that is not broken, or destroys it if it is of no use for later requests.
    void add(std::unique_ptr<Session> session, PolicyChoices::Lease policy);
    // Returns a fork that holds the longest possible beginning of the prompt, but not the prompt's
    // last token, whose logits the request needs. NULL: no kept session has the same policy and
    // enough equal tokens.
    std::unique_ptr<Session> fork_for(const PolicySetup &plan, std::span<const int32_t> prompt);
    // Destroys the sessions that were not used for the longest time, until the others hold at most
    // `bytes`. Blocks that sessions share count for each of them.
    void shrink_to(uint64_t bytes);
    size_t size() const { return kept_.size(); }

  private:
    struct Kept {
        std::unique_ptr<Session> session;
        PolicyChoices::Lease policy;
        uint64_t bytes;
    };

    size_t most_;
    std::vector<Kept> kept_; // the session that was used last is at the end
};

} // namespace keel
