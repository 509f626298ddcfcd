// The public scheduler. It is a thin layer over core/schedule and does not expose types of the
// core.
#include <keel/scheduler.hpp>

#include "convert.hpp"
#include "errors.hpp"

#include "base/error.hpp"
#include "config/target.hpp"
#include "schedule/policy_list.hpp"
#include "schedule/scheduler.hpp"

#include <algorithm>
#include <utility>

namespace keel::api {
namespace {

RequestEvent event_of(keel::TextEvent &&e) {
    RequestEvent event;
    switch (e.kind) {
    case keel::TextEvent::Kind::text: event.kind = RequestEvent::Kind::text; break;
    case keel::TextEvent::Kind::end: event.kind = RequestEvent::Kind::end; break;
    case keel::TextEvent::Kind::failed: event.kind = RequestEvent::Kind::failed; break;
    }
    event.choice = e.choice;
    event.text = std::move(e.piece.text);
    event.ids = std::move(e.piece.ids);
    event.logprobs = logprobs_of(e.piece.logprobs);
    event.stop = stop_of(e.reason);
    event.error_kind = kind_of(e.error_kind);
    event.detail = std::move(e.detail);
    return event;
}

RequestUsage usage_of(const keel::RequestUsage &u) {
    RequestUsage usage;
    usage.prompt_tokens = u.prompt_tokens;
    usage.generated_tokens = u.generated_tokens;
    usage.cached_tokens = u.cached_tokens;
    usage.kept_tokens = u.kept_tokens;
    usage.evicted_tokens = u.evicted_tokens;
    usage.evictions = u.evictions;
    usage.cache_peak_bytes = u.cache_peak_bytes;
    usage.queue_seconds = u.queue_seconds;
    usage.prompt_seconds = u.prompt_seconds;
    usage.generation_seconds = u.generation_seconds;
    usage.policy_seconds = u.policy_seconds;
    usage.policy = u.policy;
    return usage;
}

keel::TextOrder order_of(Request &&request, int64_t vocabulary) {
    if (request.generation.on_text || request.generation.on_progress) {
        keel::throw_error(keel::ErrorKind::usage,
                          "Request::generation: expected no on_text and no on_progress; use "
                          "Request::on_event");
    }
    keel::TextOrder order;
    order.options = options_of(request.generation, 0);
    for (const int32_t id : request.end_ids) {
        if (id < 0 || id >= vocabulary)
            keel::throw_error(keel::ErrorKind::usage,
                              "Request::end_ids: expected tokens from 0 to {}, found {}",
                              vocabulary - 1, id);
    }
    order.options.end_ids = std::move(request.end_ids);
    std::sort(order.options.end_ids.begin(), order.options.end_ids.end());
    order.prompt = std::move(request.prompt);
    order.choices = request.choices;
    order.policy = std::move(request.policy);
    order.protect = std::move(request.protect);
    order.prompt_logprobs = request.prompt_logprobs;
    if (request.on_prompt) {
        order.on_prompt =
            [call = std::move(request.on_prompt)](const std::vector<TokenLogprobs> &prompt) {
                call(logprobs_of(prompt));
            };
    }
    if (request.on_event) {
        order.on_event = [call = std::move(request.on_event)](keel::TextEvent event) {
            call(event_of(std::move(event)));
        };
    }
    if (request.on_done) {
        order.on_done = [call = std::move(request.on_done)](const keel::RequestUsage &usage) {
            call(usage_of(usage));
        };
    }
    return order;
}

keel::SchedulerLimits limits_of(const SchedulerOptions &options) {
    if (options.prompt_tokens_per_step < 0) {
        keel::throw_error(keel::ErrorKind::usage,
                          "SchedulerOptions::prompt_tokens_per_step: expected 0 or more, found {}",
                          options.prompt_tokens_per_step);
    }
    const int64_t chunk = std::min<int64_t>(options.prompt_tokens_per_step, 65536);
    return {options.seats, options.queue, options.cache_bytes, static_cast<uint32_t>(chunk),
            options.kept};
}

PolicyKey key_of(const keel::PolicyKeyFacts &key) {
    return {key.name, key.default_value, key.expected, key.doc};
}

} // namespace

struct Scheduler::Impl {
    std::vector<PolicyInfo> policies;
    std::unique_ptr<keel::Scheduler> scheduler;

    const keel::Pipeline &pipeline() const { return scheduler->pipeline(); }
};

Scheduler::Scheduler(const std::string &target, const std::vector<std::string> &overrides,
                     const SchedulerOptions &options, const Progress &progress)
    : impl_(std::make_unique<Impl>()) {
    covered([&] {
        const keel::SchedulerLimits limits = limits_of(options);
        PipelineOptions pipeline_options = scheduler_pipeline_options(limits);
        pipeline_options.progress = progress_of(progress);
        auto pipeline = std::make_unique<keel::Pipeline>(
            pipeline::config_for_target(target, overrides), pipeline_options);
        for (const keel::ListedPolicy &policy : keel::list_policies()) {
            PolicyInfo &info = impl_->policies.emplace_back();
            info.name = policy.name;
            info.summary = policy.doc;
            for (const keel::PolicyKeyFacts &param : policy.params)
                info.params.push_back(key_of(param));
        }
        impl_->scheduler = std::make_unique<keel::Scheduler>(std::move(pipeline), limits);
    });
}

Scheduler::~Scheduler() = default;

uint64_t Scheduler::submit(Request request) {
    return covered(
        [&] { return impl_->scheduler->submit(order_of(std::move(request), vocab_size())); });
}

void Scheduler::cancel(uint64_t id) noexcept { impl_->scheduler->cancel(id); }

bool Scheduler::drain(double seconds) {
    return covered([&] { return impl_->scheduler->drain(seconds); });
}

SchedulerStats Scheduler::stats() const {
    const keel::SchedulerStats s = impl_->scheduler->stats();
    SchedulerStats stats;
    stats.running = s.running;
    stats.waiting = s.waiting;
    stats.requests = s.requests;
    stats.finished = s.finished;
    stats.failed = s.failed;
    stats.cancelled = s.cancelled;
    stats.refused = s.refused;
    stats.prompt_tokens = s.prompt_tokens;
    stats.generated_tokens = s.generated_tokens;
    stats.cached_tokens = s.cached_tokens;
    stats.evicted_tokens = s.evicted_tokens;
    stats.cache_bytes = s.cache_bytes;
    stats.cache_peak_bytes = s.cache_peak_bytes;
    stats.cache_reserved_bytes = s.reserved_bytes;
    stats.cache_cap_bytes = s.cap_bytes;
    stats.steps = s.steps;
    stats.step_seconds = s.step_seconds;
    return stats;
}

std::vector<PolicyInfo> Scheduler::policies() const { return impl_->policies; }

std::vector<PolicyKey> Scheduler::policy_keys() const {
    std::vector<PolicyKey> keys;
    for (const keel::PolicyKeyFacts &key : keel::list_policy_keys()) keys.push_back(key_of(key));
    return keys;
}

std::vector<int32_t> Scheduler::encode(std::string_view text, bool begins,
                                       bool parse_special) const {
    return covered([&] {
        return impl_->pipeline().tokenizer()->encode(
            text, EncodeOptions{
                      .add_special = begins, .parse_special = parse_special, .continues = !begins});
    });
}

std::string Scheduler::decode(const std::vector<int32_t> &ids) const {
    return covered([&] {
        check_ids(ids, "Scheduler::decode", impl_->pipeline());
        return impl_->pipeline().tokenizer()->decode(ids);
    });
}

int64_t Scheduler::context() const { return impl_->pipeline().context(); }

int64_t Scheduler::vocab_size() const { return impl_->pipeline().model().vocab_size; }

Generation Scheduler::defaults() const { return generation_of(impl_->pipeline().config()); }

} // namespace keel::api
