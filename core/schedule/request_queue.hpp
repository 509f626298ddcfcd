#pragma once

#include "schedule/active_request.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace keel {

// All requests of a scheduler, and the seats and the bytes that they have. A request begins if
// there is a seat for each of its choices and if the bytes that its caches can take are free. Its
// bytes are reserved until it ends, so no request has to give way to another one. Requests begin in
// the order in which they came. Thread-safe.
class RequestQueue {
  public:
    struct Limits {
        int64_t seats = 8;
        int64_t waiting = 64; // the most choices that wait
        uint64_t bytes = 0;   // of all caches; 0: no limit
    };
    explicit RequestQueue(const Limits &limits) : limits_(limits), free_seats_(limits.seats) {}

    // ---- any thread ----

    // Throws Error(usage) if the request can never begin, Error(resource) if too many choices wait,
    // and the error of refuse().
    void submit(std::shared_ptr<ActiveRequest> request);
    // Runs a function in the scheduler's thread, between two steps, and waits for it. Throws the
    // exception of the function.
    void run(const std::function<void()> &task);
    void cancel(uint64_t id) noexcept;
    // From now on submit() throws this error.
    void refuse(const Error &why);
    // Waits until all requests have ended. Returns false after `seconds`.
    bool wait_until_empty(double seconds);
    // Cancels all requests. take() reports it.
    void stop();

    struct Counts {
        int64_t running = 0, waiting = 0; // choices
        uint64_t reserved_bytes = 0;
        // Requests. Each that has ended is in one of the last three.
        uint64_t submitted = 0, refused = 0, finished = 0, failed = 0, cancelled = 0;
        uint64_t evicted_tokens = 0; // of the requests that have ended
    };
    Counts counts() const;

    // ---- the scheduler's thread ----

    using Requests = std::vector<std::shared_ptr<ActiveRequest>>;
    struct Work {
        std::vector<std::function<void()>> tasks;
        Requests begin;     // these have seats now
        Requests cancelled; // these were cancelled before they began
        bool stops = false; // stop() was called
    };
    // Returns the new work. Unless `is_busy`, waits until there is some.
    Work take(bool is_busy);
    // Removes all requests that have not begun.
    Requests take_waiting();
    void leave_seat();
    // The request needs only `bytes` from now on.
    void shrink(ActiveRequest &request, uint64_t bytes);
    // The last choice of the request has ended: counts the request and frees its bytes.
    void release(ActiveRequest &request);
    // The last call for a request, after its last callback.
    void forget(const ActiveRequest &request);

  private:
    bool fits(const ActiveRequest &request) const;
    bool has_room(uint64_t bytes) const;
    void begin(const std::shared_ptr<ActiveRequest> &request);
    void begin_waiting();
    void take_cancelled(Requests &requests);

    const Limits limits_;
    mutable std::mutex mutex_;
    std::condition_variable wake_, ended_;
    int64_t free_seats_;
    uint64_t reserved_ = 0; // bytes
    Counts counts_;         // without `running` and `reserved_bytes`
    std::deque<std::shared_ptr<ActiveRequest>> waiting_;
    Requests begun_; // for the next take()
    std::vector<std::function<void()>> tasks_;
    std::map<uint64_t, std::shared_ptr<ActiveRequest>> live_;
    std::optional<Error> refusal_;
    bool stops_ = false, has_cancelled_ = false;
};

} // namespace keel
