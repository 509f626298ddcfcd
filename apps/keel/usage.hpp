#pragma once

#include "program.hpp"

namespace keel::cli {

// The help of the command that was named last, or of the program.
std::string help_text(const CLI::App &app);

// One line that says what is wrong with a command line, with a suggestion and where to read more.
std::string usage_text(const CLI::App &app, const CLI::ParseError &error);

} // namespace keel::cli
