#pragma once

#include <keel/ext/draft/timestamps.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace keel {

class Device;
class Trace;

// The time line of a device in a trace, from a backend that serves keel.timestamps/1. Not
// thread-safe: only the user of the stream calls it.
class DeviceTimes {
  public:
    // Returns NULL if the backend does not have the extension, or if the device has no clock.
    // `device` and `trace` must outlive the object.
    static std::unique_ptr<DeviceTimes> start(Device &device, Trace &trace);
    ~DeviceTimes();
    DeviceTimes(const DeviceTimes &) = delete;
    DeviceTimes &operator=(const DeviceTimes &) = delete;

    // Call it after the backend has accepted a call of the op table. The trace shows the call with
    // the name `name`, and also shows `label`.
    void queued(const char *label, const char *name);
    // Call it after a wait. Writes the times of finished ops to the trace.
    void collect();
    size_t waiting() const { return ops_.size(); } // ops whose time is not read yet

  private:
    struct Op {
        std::string label, name;
    };
    DeviceTimes(Device &device, Trace &trace, const keel_timestamps &table)
        : device_(device), trace_(trace), table_(table) {}
    void align(uint64_t last_end_ns);

    Device &device_;
    Trace &trace_;
    keel_timestamps table_;
    std::deque<Op> ops_;                            // ops whose time is not read yet
    uint64_t first_ = 1;                            // number of the op ops_.front(), counted from 1
    std::vector<uint64_t> numbers_, begins_, ends_; // result of the last read
    // microseconds to add to a time of the device's clock to get a time of the trace
    std::optional<double> offset_;
};

} // namespace keel
