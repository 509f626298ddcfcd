#pragma once

#include <keel/scheduler.hpp>

#include <cstdint>
#include <vector>

namespace keel::server {

// Runs requests. The server uses it for everything that the model computes. Any thread may call
// any member. The members have the meaning that they have in api::Scheduler.
class Engine {
  public:
    virtual ~Engine() = default;

    virtual uint64_t submit(api::Request request) = 0;
    virtual void cancel(uint64_t id) noexcept = 0;
    // Cancels all requests and waits for the last callback. No other member may be called after it.
    virtual void stop() = 0;
    virtual api::SchedulerStats stats() const = 0;
    virtual std::vector<api::PolicyInfo> policies() const = 0;
    virtual std::vector<api::PolicyKey> policy_keys() const = 0;
    virtual int64_t context() const = 0;
    virtual int64_t vocab_size() const = 0;
    virtual api::Generation defaults() const = 0;
    // Largest number of sequences that run and wait at once.
    virtual int64_t most_sequences() const = 0;
};

} // namespace keel::server
