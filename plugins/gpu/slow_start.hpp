// The first work on a device can take long, because the driver must compile kernels. This class
// tells the user once that kernels are compiled. So the user does not think that the program hangs.
#pragma once

#include <keel/host.h>

#include <chrono>

namespace keel_gpu {

// Each context has one object. Only the context's thread may use it.
class SlowStart {
  public:
    // Called for a kernel that has not run before. The driver compiles this kernel now, or when the
    // kernel runs for the first time.
    void kernel_made() noexcept { fresh_ = true; }
    // Called when all submitted work has ended. Then the driver has compiled all kernels of this
    // work.
    void work_ended() noexcept { fresh_ = false; }
    // Returns true if passed() should be called. This is the case if the driver can be compiling a
    // kernel and the user was not told yet.
    bool is_watched() const noexcept { return fresh_ && !told_; }
    // Adds the time of a driver call or of a wait, during which the driver can have compiled
    // kernels. When the sum reaches one second, the user is told.
    void passed(const keel_host *host, const char *device, double seconds) noexcept;

  private:
    bool fresh_ = false, told_ = false;
    double seconds_ = 0;
};

// Measures the time of a driver call, from the object's construction to its destruction.
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
