// A device's first work takes long where the driver has kernels to compile. Says so once, so that
// nobody takes it for a program that hangs.
#pragma once

#include <keel/host.h>

#include <chrono>

namespace keel_gpu {

// One for each context; used where the context is.
class SlowStart {
  public:
    // A kernel that did not run before: the driver compiles it now, or when it first runs.
    void kernel_made() noexcept { fresh_ = true; }
    // All that was submitted has ended: no driver has anything left to compile of it.
    void work_ended() noexcept { fresh_ = false; }
    // Whether time that passes is counted.
    bool is_watched() const noexcept { return fresh_ && !told_; }
    // So much time went by in a call of the driver that may have compiled, or in waiting for work
    // that may have to be compiled first. When it is a second in all, the user is told.
    void passed(const keel_host *host, const char *device, double seconds) noexcept;

  private:
    bool fresh_ = false, told_ = false;
    double seconds_ = 0;
};

// The time of a call of the driver, from construction to destruction.
class DriverTime {
  public:
    DriverTime(SlowStart &start, const keel_host *host, const char *device) noexcept
        : start_(start), host_(host), device_(device), begin_(std::chrono::steady_clock::now()) {}
    ~DriverTime() {
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin_;
        start_.passed(host_, device_, time.count());
    }
    DriverTime(const DriverTime &) = delete;
    DriverTime &operator=(const DriverTime &) = delete;

  private:
    SlowStart &start_;
    const keel_host *host_;
    const char *device_;
    std::chrono::steady_clock::time_point begin_;
};

} // namespace keel_gpu
