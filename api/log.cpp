// Passes Keel's log messages to the user's callback.
#include <keel/keel.hpp>

#include "base/log_sinks.hpp"

#include <mutex>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <utility>

namespace keel::api {
namespace {

LogLevel level_of(spdlog::level::level_enum level) {
    switch (level) {
    case spdlog::level::err:
    case spdlog::level::critical: return LogLevel::error;
    case spdlog::level::warn: return LogLevel::warning;
    case spdlog::level::info: return LogLevel::info;
    default: return LogLevel::debug;
    }
}

spdlog::level::level_enum level_of(LogLevel level) {
    switch (level) {
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::debug: break;
    }
    return spdlog::level::debug;
}

// Passes messages to the current callback. The callback runs outside the lock, because it may set
// another callback.
class CallbackSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
  public:
    void set(Log callback) {
        auto next = callback ? std::make_shared<const Log>(std::move(callback)) : nullptr;
        const std::lock_guard lock(guard_);
        callback_.swap(next);
    }

  private:
    void sink_it_(const spdlog::details::log_msg &message) override {
        const std::shared_ptr<const Log> callback = [&] {
            const std::lock_guard lock(guard_);
            return callback_;
        }();
        if (!callback) return;
        try {
            (*callback)(level_of(message.level),
                        std::string_view(message.payload.data(), message.payload.size()));
        } catch (...) {
            // An exception of the callback must not stop Keel, and the logger would print it. So it
            // is ignored here.
        }
    }
    void flush_() override {}

    std::mutex guard_;
    std::shared_ptr<const Log> callback_;
};

} // namespace

void set_log(Log callback, LogLevel least) {
    static const auto sink = [] {
        auto made = std::make_shared<CallbackSink>();
        spdlog_logger().sinks().push_back(made);
        return made;
    }();
    sink->set(std::move(callback));
    spdlog_logger().set_level(level_of(least));
}

} // namespace keel::api
