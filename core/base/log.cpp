#include "base/log.hpp"

#include "base/log_sinks.hpp"

#include <new>

namespace keel {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
    switch (level) {
    case LogLevel::trace: return spdlog::level::trace;
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warn: return spdlog::level::warn;
    case LogLevel::error: break;
    }
    return spdlog::level::err;
}

} // namespace

spdlog::logger &spdlog_logger() {
    // The logger is never destroyed, because plugins stay mapped at exit, and a driver's thread can
    // still log.
    static auto *const logger = new spdlog::logger("keel");
    return *logger;
}

Log &log() {
    static Log log;
    return log;
}

bool Log::should_log(LogLevel level) const { return spdlog_logger().should_log(level_of(level)); }

void Log::write(LogLevel level, std::string_view message) {
    spdlog_logger().log(level_of(level), spdlog::string_view_t(message.data(), message.size()));
}

void Log::write_formatted(LogLevel level, fmt::string_view format, fmt::format_args args) {
    if (!should_log(level)) return;
    try {
        write(level, fmt::vformat(format, args));
    } catch (const std::bad_alloc &) {
        // The caller must continue even if a log line is lost.
    }
}

} // namespace keel
