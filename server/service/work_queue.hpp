#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace keel::server {

// A thread that runs functions one after the other. The server reads bodies and converts text to
// tokens in it, so that the I/O thread never computes for long. The functions must not throw.
class WorkQueue {
  public:
    WorkQueue();
    ~WorkQueue(); // finishes the running function, and drops the others
    WorkQueue(const WorkQueue &) = delete;
    WorkQueue &operator=(const WorkQueue &) = delete;

    void add(std::function<void()> work); // any thread

  private:
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> waiting_;
    bool is_stopping_ = false;
    std::thread thread_;
};

} // namespace keel::server
