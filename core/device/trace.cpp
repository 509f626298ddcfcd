#include "device/trace.hpp"

#include "base/error.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace keel {
namespace {

constexpr std::string_view head =
    "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"made_by\":\"keel\"},\"traceEvents\":[\n";
constexpr std::string_view first_events =
    R"({"name":"process_name","ph":"M","pid":1,"tid":1,"args":{"name":"keel"}},
{"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"host: queueing and waiting"}})";
constexpr std::string_view tail = "\n]}\n";
constexpr size_t pending_bytes = size_t{256} << 10;

bool write_at(int fd, std::string_view text, uint64_t at) {
    while (!text.empty()) {
        const ssize_t n = ::pwrite(fd, text.data(), text.size(), static_cast<off_t>(at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        text.remove_prefix(static_cast<size_t>(n));
        at += static_cast<uint64_t>(n);
    }
    return true;
}

bool is_old_trace(int fd) {
    char begin[head.size()];
    const ssize_t n = ::pread(fd, begin, sizeof begin, 0);
    return n == 0 || (n == static_cast<ssize_t>(sizeof begin) &&
                      std::string_view(begin, sizeof begin) == head);
}

} // namespace

Trace::Trace(const std::filesystem::path &file)
    : file_(file), start_(std::chrono::steady_clock::now()) {
    const auto refuse = [&](const std::string &why) {
        if (fd_ >= 0) ::close(fd_);
        throw_error(ErrorKind::usage, "{}: the trace cannot be written to this file: {}",
                    file.string(), why);
    };
    // O_NONBLOCK: without it, opening a pipe that has no reader would block forever.
    fd_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd_ < 0) refuse(std::strerror(errno));
    struct stat status {};
    if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) refuse("it is not a regular file");
    if (!is_old_trace(fd_)) refuse("the file exists and is not a trace; name a new file");
    const std::string begin = std::string(head) + std::string(first_events);
    if (::ftruncate(fd_, 0) != 0 || !write_at(fd_, begin + std::string(tail), 0))
        refuse(std::strerror(errno));
    end_ = begin.size();
}

Trace::~Trace() {
    flush();
    if (fd_ >= 0) ::close(fd_);
}

double Trace::now() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_)
        .count();
}

std::string Trace::text(std::string_view value) {
    std::string out = "\"";
    for (const char c : value) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte < 0x20 || byte >= 0x7F) {
            // labels and kernel names are ASCII; other bytes become an escape
            out += fmt::format("\\u{:04x}", byte);
        } else {
            out += c;
        }
    }
    return out + '"';
}

void Trace::add(std::string event) {
    if (fd_ < 0) return;
    pending_ += ",\n";
    pending_ += event;
    if (pending_.size() >= pending_bytes) flush();
}

void Trace::span(std::string_view name, std::string_view category, double begin, double end,
                 const std::vector<TraceArg> &args) {
    std::string event = fmt::format(
        R"({{"name":{},"cat":{},"ph":"X","ts":{:.3f},"dur":{:.3f},"pid":1,"tid":1,"args":{{)",
        text(name), text(category), begin, end > begin ? end - begin : 0);
    for (const auto &[key, value] : args)
        event += fmt::format("{}{}:{}", event.back() == '{' ? "" : ",", text(key), value);
    add(event + "}}");
}

void Trace::device_span(std::string_view device, std::string_view name, std::string_view label,
                        double begin, double end) {
    auto known = std::find(devices_.begin(), devices_.end(), device);
    const auto line = 2 + (known - devices_.begin()); // the time line of the host has number 1
    if (known == devices_.end()) {
        devices_.emplace_back(device);
        add(fmt::format(
            R"({{"name":"thread_name","ph":"M","pid":1,"tid":{},"args":{{"name":{}}}}})", line,
            text(fmt::format("device: {}", device))));
    }
    add(fmt::format(
        R"({{"name":{},"cat":"device","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":1,"tid":{},)"
        R"("args":{{"label":{}}}}})",
        text(name), begin, end > begin ? end - begin : 0, line, text(label)));
}

void Trace::counter(std::string_view name, double value) {
    add(fmt::format(R"({{"name":{},"ph":"C","ts":{:.3f},"pid":1,"tid":1,"args":{{"value":{}}}}})",
                    text(name), now(), value));
}

// Writes the new events over the old closing brackets, and new brackets after them, in one piece.
void Trace::flush() noexcept {
    if (fd_ < 0 || pending_.empty()) return;
    try {
        if (end_ + pending_.size() > most_bytes)
            return stop(fmt::format("it has reached {} MiB", most_bytes >> 20));
        const size_t events = pending_.size();
        pending_ += tail;
        if (!write_at(fd_, pending_, end_)) {
            const int problem = errno;
            // The events that were already in the file stay readable.
            if (::ftruncate(fd_, static_cast<off_t>(end_)) == 0) write_at(fd_, tail, end_);
            return stop(std::strerror(problem));
        }
        end_ += events;
        pending_.clear();
    } catch (...) {
        stop("no memory");
    }
}

void Trace::stop(const std::string &why) noexcept {
    ::close(fd_);
    fd_ = -1;
    pending_.clear();
    try {
        log().warn("{}: the trace ends early: {}; the run continues without a trace",
                   file_.string(), why);
    } catch (...) {
    }
}

void TraceSpan::end() noexcept {
    try {
        std::vector<TraceArg> args;
        if (key_ != nullptr && value_ != nullptr) args.emplace_back(key_, Trace::text(value_));
        trace_->span(name_, category_, begin_, trace_->now(), args);
    } catch (...) { // there is no memory for the event, so it is lost
    }
}

} // namespace keel
