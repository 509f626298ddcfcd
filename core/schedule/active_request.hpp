#pragma once

#include "schedule/cache_bound.hpp"
#include "schedule/policy_choices.hpp"
#include "schedule/request.hpp"

#include <atomic>
#include <chrono>

namespace keel {

// A request from submit() until its last choice has ended. Only the scheduler's thread uses it,
// except for is_cancelled and the members that never change.
class ActiveRequest {
  public:
    using Clock = std::chrono::steady_clock;

    ActiveRequest(uint64_t number, TextOrder asked, PolicyChoices::Lease lease,
                  const CacheBound &most)
        : id(number), order(std::move(asked)), policy(std::move(lease)), bound(most),
          left(order.choices) {}

    const uint64_t id;
    const TextOrder order;
    const PolicyChoices::Lease policy;
    const CacheBound bound;
    std::atomic<bool> is_cancelled{false};

    int64_t left;          // choices that have not ended
    uint64_t reserved = 0; // bytes, see RequestQueue; guarded by its mutex
    RequestUsage usage;    // complete when `left` is 0
    uint64_t evicted = 0;  // tokens, of all choices
    bool has_failed = false, was_cancelled = false;

    void note_step();  // a step with tokens of the request begins
    void note_token(); // a choice has got a token
    void deliver(TextEvent event);
    void deliver_prompt(std::vector<TokenLogprobs> prompt);
    // A choice ends with this event. Returns true if it is the last choice.
    bool count_end(const TextEvent &event);
    // Calls on_done. Call it after the last event.
    void finish();

  private:
    template <typename Call> void call_back(const Call &call);

    const Clock::time_point submitted_ = Clock::now();
    std::optional<Clock::time_point> first_step_, first_token_;
    bool is_deaf_ = false; // a callback has thrown
};

} // namespace keel
