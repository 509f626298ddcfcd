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

// A device's own time line in a trace, from a backend that serves keel.timestamps/1. Not thread-safe: for the stream's user.
class DeviceTimes {
  public:
    // NULL where the backend has no such extension, or the device no clock. Both outlive this.
    static std::unique_ptr<DeviceTimes> start(Device &device, Trace &trace);
    ~DeviceTimes();
    DeviceTimes(const DeviceTimes &) = delete;
    DeviceTimes &operator=(const DeviceTimes &) = delete;

    void queued(const char *op); // one more call of the op table that the backend took
    // Behind a wait: what is done goes into the trace.
    void collect();
    size_t waiting() const { return labels_.size(); } // ops whose time was not read yet

  private:
    DeviceTimes(Device &device, Trace &trace, const keel_timestamps &table)
        : device_(device), trace_(trace), table_(table) {}
    void align(uint64_t last_end_ns);

    Device &device_;
    Trace &trace_;
    keel_timestamps table_;
    std::deque<std::string> labels_;                // of ops whose time was not read yet
    uint64_t first_ = 1;                            // the number of labels_.front()
    std::vector<uint64_t> numbers_, begins_, ends_; // what was read last
    std::optional<double> offset_; // microseconds to add to the device's clock for the trace's
};

} // namespace keel
