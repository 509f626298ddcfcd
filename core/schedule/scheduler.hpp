#pragma once

#include "schedule/kept_sessions.hpp"
#include "schedule/request_queue.hpp"
#include "schedule/running_texts.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

namespace keel {

struct SchedulerLimits {
    int64_t seats = 8;          // sequences that run at once, 1 to Pipeline::most_batch
    int64_t waiting = 64;       // sequences that wait
    uint64_t cache_bytes = 0;   // of all caches; 0: no limit
    uint32_t prefill_chunk = 0; // most prompt tokens of a step; 0: the backend's chunk size
    int64_t kept = 0;           // sessions of ended requests that stay, see KeptSessions
};
// Throws Error(usage) if a limit is out of its range. Otherwise returns the options that a
// scheduler's pipeline needs.
PipelineOptions scheduler_pipeline_options(const SchedulerLimits &limits);

// Counters of a scheduler.
struct SchedulerStats {
    int64_t running = 0, waiting = 0; // choices
    // Requests: taken by submit(), ended, and refused by submit(). finished + failed + cancelled is
    // the number of requests that have ended.
    uint64_t requests = 0, finished = 0, failed = 0, cancelled = 0, refused = 0;
    uint64_t prompt_tokens = 0, generated_tokens = 0; // that steps have read and generated
    uint64_t cached_tokens = 0;  // prompt tokens that were taken from the cache of earlier requests
    uint64_t evicted_tokens = 0; // of the choices that have ended, see SessionStats
    uint64_t cache_bytes = 0;    // of all sequences: keys, values, memory of policies
    uint64_t cache_peak_bytes = 0; // the largest cache_bytes after a step
    uint64_t reserved_bytes = 0;   // the most that the running requests can take
    uint64_t cap_bytes = 0;        // SchedulerLimits::cache_bytes
    uint64_t steps = 0;
    double step_seconds = 0;
};

// Runs many requests on one pipeline, in a thread of its own. RequestQueue decides when a request
// begins, PolicyChoices makes the policies that requests choose, and RunningTexts runs the steps.
// All functions are thread-safe.
class Scheduler {
  public:
    // The pipeline must have the options scheduler_pipeline_options(limits). From now on only the
    // scheduler uses it, except for the const functions of its tokenizer, model and config.
    Scheduler(std::unique_ptr<Pipeline> pipeline, const SchedulerLimits &limits);
    // Cancels all requests and waits for their end.
    ~Scheduler();
    Scheduler(const Scheduler &) = delete;
    Scheduler &operator=(const Scheduler &) = delete;

    // Returns the number of the request. Throws Error(usage) for a wrong order and for an order
    // that can never begin, the errors of PolicyChoices::find, Error(resource) if the queue is
    // full or the scheduler drains, and Error(runtime) after a device was lost. Must not be called
    // by a callback.
    uint64_t submit(TextOrder order);
    // Ends a request before its next step. Does nothing if the request has ended.
    void cancel(uint64_t id) noexcept { queue_.cancel(id); }
    // Refuses new requests, and waits until all requests have ended. Returns false after `seconds`.
    bool drain(double seconds);
    SchedulerStats stats() const;
    const Pipeline &pipeline() const { return *pipeline_; }

  private:
    void run();
    void run_step();
    void start(const std::shared_ptr<ActiveRequest> &request);
    std::unique_ptr<Session> session_for(const ActiveRequest &request);
    void end_waiting(const RequestQueue::Requests &requests, const TextEvent &event);
    void fail_all(const Error &error);
    void check(const TextOrder &order) const;
    void count(double seconds);

    std::unique_ptr<Pipeline> pipeline_;
    SessionBatch batch_;
    RunningTexts texts_;
    PolicyChoices policies_;
    KeptSessions kept_;
    uint64_t most_bytes_; // of reservations and kept sessions together
    RequestQueue queue_;
    std::atomic<uint64_t> last_id_{0};
    mutable std::mutex stats_mutex_;
    SchedulerStats stats_;
    std::thread thread_; // the last member, because it uses the others
};

} // namespace keel
