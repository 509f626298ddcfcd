#pragma once

#include "run/session.hpp"
#include "schedule/policy_choices.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace keel {

// Caches of earlier requests. A later request whose prompt begins with the same tokens forks one of
// them, so it shares the blocks of these tokens and does not read them again.
//
// A kept session holds all of its tokens. It can serve requests of two kinds of policies: those
// that keep all tokens, and those that act only at the end of a prompt and read nothing of the
// earlier steps but keys and values. Other policies evict while a prompt is read, or sum up
// attention over all steps. Not thread-safe.
class KeptSessions {
  public:
    static constexpr int64_t least_tokens = 16; // fewer equal tokens are not worth a fork

    // `most`: the most sessions that are kept. 0: none. The pipeline must allow most + 1 sessions
    // more than those that run.
    KeptSessions(Pipeline &pipeline, size_t most);

    // Returns true if requests under this policy can begin with a kept session.
    static bool serves(const PolicySetup &plan);
    // Keeps the session of a request that has ended, if its policy keeps all tokens and if there is
    // room. Otherwise destroys it. `freed`: the bytes that the request has reserved, which are free
    // afterwards.
    void add(std::unique_ptr<Session> session, PolicyChoices::Lease policy, uint64_t freed);
    // Keeps a copy of a session from which nothing was evicted, if requests under its policy can
    // begin with it and if no kept session has its tokens.
    void add_copy(Session &session);
    // Returns a session under `plan` that has the longest possible beginning of the prompt. The
    // last token is left, because the request needs its logits. So are the tokens whose queries the
    // policy reads. NULL: no kept session has enough of these tokens.
    std::unique_ptr<Session> fork_for(PolicySetup &plan, std::span<const int32_t> prompt);
    // From now on kept sessions hold at most `bytes` together. Destroys those that were not used
    // for the longest time. Blocks that sessions share count for each of them.
    void limit_to(uint64_t bytes);

  private:
    struct Kept {
        std::unique_ptr<Session> session;
        PolicyChoices::Lease policy; // empty: full_
        uint64_t bytes;
    };
    void keep(std::unique_ptr<Session> session, PolicyChoices::Lease policy, uint64_t freed);
    void shrink_to(uint64_t bytes);

    size_t most_;
    PolicySetup *full_ = nullptr; // keeps all tokens; NULL if nothing is kept
    uint64_t limit_ = 0;
    std::vector<Kept> kept_; // the session that was used last is at the end
};

} // namespace keel
