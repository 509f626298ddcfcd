#pragma once

#include <fmt/core.h>
#include <string_view>

namespace keel {

enum class LogLevel { trace, debug, info, warn, error };

// Keel's log, for code that writes to it. It passes all lines to spdlog. Only log.cpp and code that
// adds a sink (base/log_sinks.hpp) include spdlog, because the headers of spdlog take seconds to
// compile. Any thread may write.
class Log {
  public:
    bool should_log(LogLevel level) const;
    void write(LogLevel level, std::string_view message);

    template <class... Args> void debug(fmt::format_string<Args...> format, Args &&...args) {
        write_formatted(LogLevel::debug, format, fmt::make_format_args(args...));
    }
    template <class... Args> void info(fmt::format_string<Args...> format, Args &&...args) {
        write_formatted(LogLevel::info, format, fmt::make_format_args(args...));
    }
    template <class... Args> void warn(fmt::format_string<Args...> format, Args &&...args) {
        write_formatted(LogLevel::warn, format, fmt::make_format_args(args...));
    }

  private:
    void write_formatted(LogLevel level, fmt::string_view format, fmt::format_args args);
};

// The log of this process. It has no sink until a program adds a sink, so the library itself never
// prints.
Log &log();

} // namespace keel
