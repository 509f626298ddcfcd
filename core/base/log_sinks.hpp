#pragma once

#include <spdlog/logger.h>

namespace keel {

// The spdlog logger that keel::log() writes to. Its name is "keel" and its level is info. A program
// adds its sinks (`spdlog_logger().sinks().push_back(...)`) at start, before other threads run.
spdlog::logger &spdlog_logger();

} // namespace keel
