#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel {

// A member of an event's `args`. The value is JSON text; see Trace::text.
using TraceArg = std::pair<std::string_view, std::string>;

// Records the work of a run over time, in a file for ui.perfetto.dev and chrome://tracing (Chrome's
// trace event format). The events show the work of the host. If a backend computes asynchronously,
// the span of an op shows only the time to queue the op. The time of the computation is then part
// of the waits.
//
// The file is complete JSON after every write, so a killed run leaves a readable file. If the file
// cannot be written, the recording ends with a warning, and the run continues. Reasons are a full
// disk, or a file that would exceed most_bytes. Not thread-safe: only the thread that runs the
// pipeline uses this object.
class Trace {
  public:
    static constexpr uint64_t most_bytes = uint64_t{1} << 30;

    // Creates the file, or replaces an old trace. Throws Error(usage) if the file cannot be
    // written, or if it exists and is not a trace.
    explicit Trace(const std::filesystem::path &file);
    ~Trace();
    Trace(const Trace &) = delete;
    Trace &operator=(const Trace &) = delete;

    double now() const; // microseconds since the trace began
    // Records an event that lasted from `begin` until `end`.
    void span(std::string_view name, std::string_view category, double begin, double end,
              const std::vector<TraceArg> &args = {});
    // Records an event on the time line of a device. `label` is the op of the pipeline. `name` is
    // the kind of op, which is equal in all layers.
    void device_span(std::string_view device, std::string_view name, std::string_view label,
                     double begin, double end);
    // Records a new value of the number `name`.
    void counter(std::string_view name, double value);
    void flush() noexcept; // writes the pending events to the file

    static std::string text(std::string_view value); // returns `value` as a JSON string
    const std::filesystem::path &file() const { return file_; }

  private:
    void add(std::string event);
    void stop(const std::string &why) noexcept;

    std::filesystem::path file_;
    std::chrono::steady_clock::time_point start_;
    int fd_ = -1;      // negative after the recording has ended
    uint64_t end_ = 0; // end of the last event in the file; the closing brackets follow it
    // devices that have a time line, in the order of the numbers of their time lines
    std::vector<std::string> devices_;
    std::string pending_; // events that are not in the file yet, each with a comma before it
};

// Records the time from its construction to its destruction. Does nothing if there is no trace.
class TraceSpan {
  public:
    TraceSpan(Trace *trace, const char *name, const char *category, const char *key = nullptr,
              const char *value = nullptr)
        : trace_(trace), name_(name), category_(category), key_(key), value_(value) {
        if (trace_ != nullptr) begin_ = trace_->now();
    }
    ~TraceSpan() {
        if (trace_ != nullptr) end();
    }
    TraceSpan(const TraceSpan &) = delete;
    TraceSpan &operator=(const TraceSpan &) = delete;

  private:
    void end() noexcept;

    Trace *trace_;
    const char *name_, *category_, *key_, *value_;
    double begin_ = 0;
};

} // namespace keel
