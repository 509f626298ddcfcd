#include "schedule/scheduler.hpp"

#include "base/error.hpp"
#include "text/text_stream.hpp"

#include <algorithm>
#include <new>

namespace keel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t logit_rows = 32; // rows of a prompt whose logits are computed together
constexpr size_t most_ranges = 1000;

// A step runs at least two sequences, because SessionBatch needs a pipeline for several.
uint32_t batch_of(const SchedulerLimits &limits) {
    return static_cast<uint32_t>(std::max<int64_t>(limits.seats, 2));
}

int64_t pinned_tokens(const TextOrder &order) {
    int64_t tokens = 0;
    for (const auto &[from, to] : order.protect) tokens += to - from;
    return tokens;
}

Error error_of(const std::exception &e) {
    if (const auto *error = dynamic_cast<const Error *>(&e)) return *error;
    if (dynamic_cast<const std::bad_alloc *>(&e) != nullptr)
        return {ErrorKind::resource, "out of memory"};
    return {ErrorKind::internal, std::string("an error that Keel did not expect: ") + e.what()};
}

} // namespace

PipelineOptions scheduler_pipeline_options(const SchedulerLimits &limits) {
    if (limits.seats < 1 || limits.seats > Pipeline::most_batch) {
        throw_error(ErrorKind::usage, "seats: expected 1 to {}, found {}", Pipeline::most_batch,
                    limits.seats);
    }
    if (limits.waiting < 0)
        throw_error(ErrorKind::usage, "queue: expected 0 or more, found {}", limits.waiting);
    if (limits.kept < 0 || limits.kept > Pipeline::most_batch) {
        throw_error(ErrorKind::usage, "kept: expected 0 to {}, found {}", Pipeline::most_batch,
                    limits.kept);
    }
    PipelineOptions options;
    options.batch = batch_of(limits);
    // One more, because a prompt may begin with a copy of a copy.
    options.sequences =
        options.batch + static_cast<uint32_t>(limits.kept > 0 ? limits.kept + 1 : 0);
    options.several_policies = true;
    options.max_logit_rows = logit_rows;
    options.cache_bytes = limits.cache_bytes;
    options.prefill_chunk = limits.prefill_chunk;
    return options;
}

Scheduler::Scheduler(std::unique_ptr<Pipeline> pipeline, const SchedulerLimits &limits)
    : pipeline_(std::move(pipeline)), batch_(*pipeline_), texts_(batch_, *pipeline_),
      policies_(*pipeline_), kept_(*pipeline_, static_cast<size_t>(limits.kept)),
      most_bytes_(limits.cache_bytes > 0 ? limits.cache_bytes
                                         : static_cast<uint64_t>(limits.seats) *
                                               cache_bound(*pipeline_, pipeline_->policy_setup(),
                                                           pipeline_->context(), 0, 0)
                                                   .text),
      queue_({limits.seats, limits.waiting, limits.cache_bytes}), room_{queue_, kept_,
                                                                        [this] { note_change(); }} {
    stats_.cap_bytes = limits.cache_bytes;
    thread_ = std::thread([this] { run(); });
}

Scheduler::~Scheduler() {
    queue_.stop();
    thread_.join();
}

// ---- any thread ---------------------------------------------------------------------------------

void Scheduler::check(const TextOrder &order) const {
    const auto refuse = [](const char *what, const auto &expected, const auto &found) {
        throw_error(ErrorKind::usage, "{}: expected {}, found {}", what, expected, found);
    };
    const int64_t vocabulary = pipeline_->model().vocab_size, prompt = std::ssize(order.prompt);
    if (order.prompt.empty()) refuse("prompt", "at least one token", "none");
    for (const int32_t id : order.prompt) {
        if (id < 0 || id >= vocabulary)
            refuse("prompt", fmt::format("tokens from 0 to {}", vocabulary - 1), id);
    }
    if (order.choices < 1) refuse("choices", "1 or more", order.choices);
    if (order.options.max_tokens < 0) refuse("max_tokens", "0 or more", order.options.max_tokens);
    if (order.prompt_logprobs.value_or(0) < 0)
        refuse("prompt_logprobs", "0 or more", *order.prompt_logprobs);
    if (order.options.logprobs.value_or(0) < 0)
        refuse("logprobs", "0 or more", *order.options.logprobs);
    if (order.protect.size() > most_ranges)
        refuse("protect", fmt::format("at most {} ranges", most_ranges), order.protect.size());
    for (const auto &[from, to] : order.protect) {
        if (from < 0 || from >= to || to > prompt) {
            refuse("protect",
                   fmt::format("ranges from a token to a later one, within the prompt's {} tokens",
                               prompt),
                   fmt::format("[{}, {}]", from, to));
        }
    }
    check_sampling_params(order.options.sampling);
    const StopMatcher stops(order.options.stop); // throws for a wrong stop string
}

uint64_t Scheduler::submit(TextOrder order) {
    if (std::this_thread::get_id() == thread_.get_id())
        throw_error(ErrorKind::usage, "submit() was called by a callback of the scheduler");
    check(order);
    PolicyChoices::Lease policy = policies_.find(
        order.policy, [this](const std::function<void()> &task) { queue_.run(task); });
    const int64_t prompt = std::ssize(order.prompt);
    check_prompt_fits(*policy->plan, prompt);
    const int64_t more = std::min<int64_t>(order.options.max_tokens, int64_t{1} << 30);
    const CacheBound bound =
        cache_bound(*pipeline_, *policy->plan, prompt, more, pinned_tokens(order));
    const uint64_t id = ++last_id_;
    queue_.submit(std::make_shared<ActiveRequest>(id, std::move(order), std::move(policy), bound));
    return id;
}

bool Scheduler::drain(double seconds) {
    queue_.refuse({ErrorKind::resource, "the scheduler takes no new requests, because it is "
                                        "about to end"});
    const bool is_empty = queue_.wait_until_empty(seconds);
    if (is_empty) wait_for_step();
    return is_empty;
}

SchedulerStats Scheduler::stats() const {
    const RequestQueue::Counts counts = queue_.counts();
    const std::lock_guard lock(stats_mutex_);
    SchedulerStats stats = stats_;
    stats.running = counts.running;
    stats.waiting = counts.waiting;
    stats.requests = counts.submitted;
    stats.refused = counts.refused;
    stats.finished = counts.finished;
    stats.failed = counts.failed;
    stats.cancelled = counts.cancelled;
    stats.evicted_tokens = counts.evicted_tokens;
    stats.reserved_bytes = counts.reserved_bytes;
    return stats;
}

// ---- the scheduler's thread ---------------------------------------------------------------------

void Scheduler::run() {
    for (;;) {
        const RequestQueue::Work work = queue_.take(!texts_.empty());
        for (const auto &task : work.tasks) task();
        TextEvent cancelled;
        cancelled.kind = TextEvent::Kind::end;
        cancelled.reason = StopReason::cancelled;
        end_waiting(work.cancelled, cancelled);
        // The reservations have room before a request takes memory.
        const uint64_t reserved = queue_.counts().reserved_bytes;
        kept_.limit_to(most_bytes_ - std::min(most_bytes_, reserved));
        for (const auto &request : work.begin) start(request);
        if (!texts_.empty()) run_step();
        const RequestQueue::Counts counts = queue_.counts();
        if (work.stops && texts_.empty() && counts.running == 0 && counts.waiting == 0) return;
    }
}

void Scheduler::run_step() {
    const auto begin = Clock::now();
    try {
        texts_.step();
    } catch (const std::exception &e) {
        fail_all(error_of(e));
    }
    note_change();
    const std::lock_guard lock(stats_mutex_);
    stats_.step_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
}

// An error that concerns all sequences. After a lost device, nothing can run any more. New requests
// are refused before the running requests end, so a client that sees the end is refused.
void Scheduler::fail_all(const Error &error) {
    if (pipeline_->engines().lost_device() == nullptr) {
        texts_.fail_all(error);
        return;
    }
    const Error why(ErrorKind::runtime,
                    fmt::format("a device was lost, so nothing can run any more; start again ({})",
                                error.what()));
    queue_.refuse(why);
    const auto waiting = queue_.take_waiting(); // otherwise they begin when a seat is free
    texts_.fail_all(error);
    TextEvent event;
    event.kind = TextEvent::Kind::failed;
    event.error_kind = why.kind();
    event.detail = why.what();
    end_waiting(waiting, event);
}

// An empty session, or a session that has the first tokens of the prompt already. The probabilities
// of a prompt need a session that reads all of its tokens.
std::unique_ptr<Session> Scheduler::session_for(const ActiveRequest &request) {
    PolicySetup &plan = *request.policy->plan;
    if (!request.order.prompt_logprobs) {
        if (auto session = kept_.fork_for(plan, request.order.prompt)) {
            const std::lock_guard lock(stats_mutex_);
            stats_.cached_tokens += static_cast<uint64_t>(session->tokens());
            return session;
        }
    }
    return batch_.make_session(plan);
}

void Scheduler::start(const std::shared_ptr<ActiveRequest> &request) {
    std::unique_ptr<ChoiceText> text;
    TextEvent event;
    event.kind = TextEvent::Kind::failed;
    try {
        text = std::make_unique<ChoiceText>(session_for(*request), request, 0, room_);
        text->begin_prompt();
        texts_.add(std::move(text));
        return;
    } catch (const std::exception &e) {
        const Error error = error_of(e);
        if (text) return text->failed(error);
        event.error_kind = error.kind();
        event.detail = error.what();
    }
    end_choices(*request, queue_, 0, request->order.choices, event);
}

void Scheduler::end_waiting(const RequestQueue::Requests &requests, const TextEvent &event) {
    for (const auto &request : requests)
        end_choices(*request, queue_, 0, request->order.choices, event, false);
}

void Scheduler::note_change() {
    const uint64_t bytes = batch_.cache_bytes() + texts_.policy_bytes();
    const std::lock_guard lock(stats_mutex_);
    stats_.steps = texts_.counters().steps;
    stats_.prompt_tokens = texts_.counters().prompt_tokens;
    stats_.generated_tokens = texts_.counters().generated_tokens;
    stats_.cache_bytes = bytes;
    stats_.cache_peak_bytes = std::max(stats_.cache_peak_bytes, bytes);
}

} // namespace keel
