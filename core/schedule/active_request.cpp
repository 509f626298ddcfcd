#include "schedule/active_request.hpp"

#include "base/log.hpp"

namespace keel {
namespace {

double seconds_between(ActiveRequest::Clock::time_point from, ActiveRequest::Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

} // namespace

// Runs a callback of the client. If it throws, cancels the request and calls no other callback than
// on_done.
template <typename Call> void ActiveRequest::call_back(const Call &call) {
    if (is_deaf_) return;
    try {
        call();
    } catch (...) {
        is_deaf_ = true;
        is_cancelled = true;
        log().warn("request {}: a callback has thrown an exception; the request is cancelled", id);
    }
}

void ActiveRequest::note_step() {
    if (!first_step_) first_step_ = Clock::now();
}

void ActiveRequest::note_token() {
    if (!first_token_) first_token_ = Clock::now();
}

void ActiveRequest::deliver(TextEvent event) {
    if (order.on_event) call_back([&] { order.on_event(std::move(event)); });
}

void ActiveRequest::deliver_prompt(std::vector<TokenLogprobs> prompt) {
    if (order.on_prompt) call_back([&] { order.on_prompt(std::move(prompt)); });
}

bool ActiveRequest::count_end(const TextEvent &event) {
    const bool is_failure = event.kind == TextEvent::Kind::failed;
    has_failed = has_failed || is_failure;
    was_cancelled = was_cancelled || (!is_failure && event.reason == StopReason::cancelled);
    return --left == 0;
}

void ActiveRequest::finish() {
    const auto now = Clock::now();
    const auto first_step = first_step_.value_or(now), first_token = first_token_.value_or(now);
    usage.prompt_tokens = order.prompt.size();
    usage.queue_seconds = seconds_between(submitted_, first_step);
    usage.prompt_seconds = seconds_between(first_step, first_token);
    usage.generation_seconds = seconds_between(first_token, now);
    usage.policy = policy->name;
    is_deaf_ = false;
    if (order.on_done) call_back([&] { order.on_done(usage); });
}

} // namespace keel
