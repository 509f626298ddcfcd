#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel {

// A member of an event's `args`. Values are JSON already; see Trace::text.
using TraceArg = std::pair<std::string_view, std::string>;

// Records what a run does over time in a file that ui.perfetto.dev and chrome://tracing read
// (Chrome's trace event format). Events are what the host does: on a backend that computes while
// the host goes on, an op's span is its queueing and the time is in the waits.
//
// The file is complete JSON after every write, so a run that is killed leaves one that can be read.
// What cannot be written (a full disk, more than most_bytes) ends the recording with a warning, not
// the run. Not thread-safe: for the thread that runs the pipeline.
class Trace {
  public:
    static constexpr uint64_t most_bytes = uint64_t{1} << 30;

    // Makes the file, or replaces an old trace. Throws Error(usage) if it cannot be written, or
    // exists and is no trace.
    explicit Trace(const std::filesystem::path &file);
    ~Trace();
    Trace(const Trace &) = delete;
    Trace &operator=(const Trace &) = delete;

    double now() const; // microseconds since the trace began
    // Something that lasted from `begin` until `end`.
    void span(std::string_view name, std::string_view category, double begin, double end,
              const std::vector<TraceArg> &args = {});
    // The same on the time line of a device. `label` says which op of the pipeline it was, `name`
    // says what it does in any layer.
    void device_span(std::string_view device, std::string_view name, std::string_view label,
                     double begin, double end);
    // A number from now on.
    void counter(std::string_view name, double value);
    void flush() noexcept; // what was recorded so far goes to the file

    static std::string text(std::string_view value); // as a JSON string
    const std::filesystem::path &file() const { return file_; }

  private:
    void add(std::string event);
    void stop(const std::string &why) noexcept;

    std::filesystem::path file_;
    std::chrono::steady_clock::time_point start_;
    int fd_ = -1;      // below 0: the recording has ended
    uint64_t end_ = 0; // of the last event in the file; the closing brackets stand behind it
    std::vector<std::string> devices_; // with a time line of their own, in the order of its number
    std::string pending_; // events that are not in the file yet, each with the comma before it
};

// Records the time until its end; nothing without a trace.
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
