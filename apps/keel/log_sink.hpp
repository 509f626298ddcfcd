#pragma once

#include "program.hpp"

namespace keel::cli {

// Makes keel::log() write to standard error, for example "keel: warning: ...", in yellow on a
// terminal.
void install_log_sink(const Program &program);

} // namespace keel::cli
