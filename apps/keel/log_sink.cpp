#include "log_sink.hpp"

#include "console.hpp"

#include "base/log_sinks.hpp"

#include <memory>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>

namespace keel::cli {
namespace {

class ConsoleSink final
    // the sink needs no mutex, because the console has its own lock
    : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
    void sink_it_(const spdlog::details::log_msg &message) override {
        const std::string_view text(message.payload.data(), message.payload.size());
        switch (message.level) {
        case spdlog::level::warn: return console().message("keel: warning: ", text, 33);
        case spdlog::level::err:
        case spdlog::level::critical: return console().message("keel: error: ", text, 31);
        case spdlog::level::info: return console().message("keel: ", text);
        default: return console().message("keel: debug: ", text, 2);
        }
    }
    void flush_() override {}
};

spdlog::level::level_enum level_of(const Program &program) {
    if (program.verbose) return spdlog::level::debug;
    if (program.quiet) return spdlog::level::err;
    return spdlog::level::from_str(program.log_level);
}

} // namespace

void install_log_sink(const Program &program) {
    spdlog_logger().sinks().push_back(std::make_shared<ConsoleSink>());
    spdlog_logger().set_level(level_of(program));
    if (program.quiet) console().hide_progress();
}

} // namespace keel::cli
