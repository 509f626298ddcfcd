#include "schedule/request_queue.hpp"

#include "base/display.hpp"

#include <algorithm>
#include <future>
#include <utility>

namespace keel {

void RequestQueue::submit(std::shared_ptr<ActiveRequest> request) {
    const int64_t choices = request->order.choices;
    const uint64_t bytes = request->bound.peak(choices);
    const std::lock_guard lock(mutex_);
    try {
        if (refusal_) throw *refusal_;
        if (choices > limits_.seats) {
            throw_error(ErrorKind::usage,
                        "the request has {} choices, but the scheduler has {} seats; ask for fewer "
                        "choices, or start with more seats (keel serve: --seats)",
                        choices, limits_.seats);
        }
        if (limits_.bytes > 0 && bytes > limits_.bytes) {
            throw_error(ErrorKind::usage,
                        "the caches of the request can take {}, but all caches together may take "
                        "{}; ask for fewer tokens or choices, choose a policy with a smaller "
                        "budget, or start with more cache_bytes (keel serve: --cache-mib)",
                        format_bytes(bytes), format_bytes(limits_.bytes));
        }
        request->reserved = bytes;
        const bool begins = waiting_.empty() && fits(*request);
        if (!begins && counts_.waiting + choices > limits_.waiting) {
            throw_error(ErrorKind::resource,
                        "the queue is full: {} sequences wait, and at most {} may wait; try again "
                        "later",
                        counts_.waiting, limits_.waiting);
        }
        live_.emplace(request->id, request);
        ++counts_.submitted;
        if (begins) {
            begin(request);
        } else {
            counts_.waiting += choices;
            waiting_.push_back(std::move(request));
        }
    } catch (const Error &) {
        ++counts_.refused;
        throw;
    }
    wake_.notify_one();
}

bool RequestQueue::has_room(uint64_t bytes) const {
    return limits_.bytes == 0 || reserved_ + bytes <= limits_.bytes;
}

bool RequestQueue::fits(const ActiveRequest &request) const {
    return request.order.choices <= free_seats_ && has_room(request.reserved);
}

void RequestQueue::begin(const std::shared_ptr<ActiveRequest> &request) {
    free_seats_ -= request->order.choices;
    reserved_ += request->reserved;
    begun_.push_back(request);
}

void RequestQueue::begin_waiting() {
    while (!waiting_.empty() && fits(*waiting_.front())) {
        counts_.waiting -= waiting_.front()->order.choices;
        begin(waiting_.front());
        waiting_.pop_front();
    }
}

void RequestQueue::run(const std::function<void()> &task) {
    std::packaged_task<void()> packaged(task);
    std::future<void> done = packaged.get_future();
    {
        const std::lock_guard lock(mutex_);
        tasks_.emplace_back([&packaged] { packaged(); });
    }
    wake_.notify_one();
    done.get();
}

void RequestQueue::cancel(uint64_t id) noexcept {
    {
        const std::lock_guard lock(mutex_);
        const auto found = live_.find(id);
        if (found == live_.end()) return;
        found->second->is_cancelled = true;
        has_cancelled_ = true;
    }
    wake_.notify_one();
}

void RequestQueue::refuse(const Error &why) {
    const std::lock_guard lock(mutex_);
    refusal_ = why;
}

bool RequestQueue::wait_until_empty(double seconds) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [&] { return live_.empty(); });
}

void RequestQueue::stop() {
    {
        const std::lock_guard lock(mutex_);
        stops_ = has_cancelled_ = true;
        for (const auto &[id, request] : live_) request->is_cancelled = true;
    }
    wake_.notify_one();
}

RequestQueue::Counts RequestQueue::counts() const {
    const std::lock_guard lock(mutex_);
    Counts counts = counts_;
    counts.running = limits_.seats - free_seats_;
    counts.reserved_bytes = reserved_;
    return counts;
}

RequestQueue::Work RequestQueue::take(bool is_busy) {
    std::unique_lock lock(mutex_);
    if (!is_busy) {
        wake_.wait(lock,
                   [&] { return stops_ || has_cancelled_ || !tasks_.empty() || !begun_.empty(); });
    }
    Work work;
    work.stops = stops_;
    work.tasks = std::exchange(tasks_, {});
    work.begin = std::exchange(begun_, {});
    if (std::exchange(has_cancelled_, false)) take_cancelled(work.cancelled);
    return work;
}

void RequestQueue::take_cancelled(Requests &requests) {
    const auto is_cancelled = [](const auto &request) { return request->is_cancelled.load(); };
    for (const auto &request : waiting_) {
        if (!is_cancelled(request)) continue;
        requests.push_back(request);
        counts_.waiting -= request->order.choices;
        request->reserved = 0;
    }
    std::erase_if(waiting_, is_cancelled);
    begin_waiting(); // for the next take()
}

RequestQueue::Requests RequestQueue::take_waiting() {
    const std::lock_guard lock(mutex_);
    Requests requests(waiting_.begin(), waiting_.end());
    for (const auto &request : requests) request->reserved = 0;
    waiting_.clear();
    counts_.waiting = 0;
    return requests;
}

void RequestQueue::leave_seat() {
    const std::lock_guard lock(mutex_);
    ++free_seats_;
    begin_waiting();
}

void RequestQueue::shrink(ActiveRequest &request, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes >= request.reserved) return;
    reserved_ -= request.reserved - bytes;
    request.reserved = bytes;
    begin_waiting();
}

void RequestQueue::release(ActiveRequest &request) {
    const std::lock_guard lock(mutex_);
    ++(request.has_failed      ? counts_.failed
       : request.was_cancelled ? counts_.cancelled
                               : counts_.finished);
    counts_.evicted_tokens += request.evicted;
    reserved_ -= request.reserved;
    request.reserved = 0;
    begin_waiting();
}

void RequestQueue::forget(const ActiveRequest &request) {
    {
        const std::lock_guard lock(mutex_);
        live_.erase(request.id);
    }
    ended_.notify_all();
}

} // namespace keel
