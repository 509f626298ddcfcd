#pragma once

#include <spdlog/logger.h>

namespace keel {

// Keel's logger, named "keel". It has no sink until a program gives it one
// (`log().sinks().push_back(...)`, at start, before other threads run), so the library itself never
// prints. Level: info.
spdlog::logger &log();

} // namespace keel
