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

// A device's own time line in a trace, from a backend that serves keel.timestamps/1. Not
// thread-safe: for the stream's user.
class DeviceTimes {
  public:
    // NULL where the backend has no such extension, or the device no clock. Both outlive this.
    static std::unique_ptr<DeviceTimes> start(Device &device, Trace &trace);
    ~DeviceTimes();
    DeviceTimes(const DeviceTimes &) = delete;
    DeviceTimes &operator=(const DeviceTimes &) = delete;

    // The backend took one more call of the op table. The trace calls it `name`, and shows `label`
    // too.
    void queued(const char *label, const char *name);
    // After a wait: what is done goes into the trace.
    void collect();
    size_t waiting() const { return ops_.size(); } // ops whose time was not read yet

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
    std::deque<Op> ops_;                            // whose time was not read yet
    uint64_t first_ = 1;                            // the number of ops_.front()
    std::vector<uint64_t> numbers_, begins_, ends_; // what was read last
    std::optional<double> offset_; // microseconds to add to the device's clock for the trace's
};

} // namespace keel
