#include "server/service/usage.hpp"

#include <algorithm>

namespace keel::server {

void UsageSum::add(const api::RequestUsage &one) {
    total.prompt_tokens += one.prompt_tokens;
    total.generated_tokens += one.generated_tokens;
    total.cached_tokens += one.cached_tokens;
    total.kept_tokens += one.kept_tokens;
    total.evicted_tokens += one.evicted_tokens;
    total.evictions += one.evictions;
    total.cache_peak_bytes += one.cache_peak_bytes;
    total.policy_seconds += one.policy_seconds;
    // the prompts of one request run at the same time
    total.queue_seconds = std::max(total.queue_seconds, one.queue_seconds);
    total.prompt_seconds = std::max(total.prompt_seconds, one.prompt_seconds);
    total.generation_seconds = std::max(total.generation_seconds, one.generation_seconds);
    if (!one.policy.empty()) total.policy = one.policy;
}

void write_usage(JsonWriter &out, const UsageSum &usage) {
    const api::RequestUsage &t = usage.total;
    out.begin_object()
        .member("prompt_tokens", t.prompt_tokens)
        .member("completion_tokens", t.generated_tokens)
        .member("total_tokens", t.prompt_tokens + t.generated_tokens)
        .key("prompt_tokens_details")
        .begin_object()
        .member("cached_tokens", t.cached_tokens)
        .end_object()
        .key("keel")
        .begin_object()
        .member("policy", t.policy)
        .member("kept_tokens", t.kept_tokens)
        .member("evicted_tokens", t.evicted_tokens)
        .member("evictions", t.evictions)
        .member("cache_peak_bytes", t.cache_peak_bytes)
        .member("queue_seconds", t.queue_seconds)
        .member("prompt_seconds", t.prompt_seconds)
        .member("generation_seconds", t.generation_seconds)
        .member("policy_seconds", t.policy_seconds)
        .member("seed", usage.seed)
        .end_object()
        .end_object();
}

} // namespace keel::server
