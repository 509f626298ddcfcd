// The first work on a device takes long if the driver must compile kernels. This class tells the
// user once, so that the program does not seem to hang.
#pragma once

#include <keel/host.h>

#include <chrono>

namespace keel_gpu {

// One object for each context. Use it only from the context's thread.
class SlowStart {
  public:
    // Called for a kernel that has not run before: the driver compiles it now, or when it first
    // runs.
    void kernel_made() noexcept { fresh_ = true; }
    // Called when all submitted work has ended: the driver has no kernel of it left to compile.
    void work_ended() noexcept { fresh_ = false; }
    // Whether time is counted now.
    bool is_watched() const noexcept { return fresh_ && !told_; }
    // Adds the time of a driver call that may have compiled kernels, or of a wait for work that may
    // need compilation first. When the sum reaches one second, the user is told.
    void passed(const keel_host *host, const char *device, double seconds) noexcept;

  private:
    bool fresh_ = false, told_ = false;
    double seconds_ = 0;
};

// Measures the time of a driver call, from construction to destruction.
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
