#pragma once

#include "command_line.hpp"

namespace keel::cli {

// The help to print, if the line asks for help. Throws Error(usage) if it names an unknown command.
bool asks_for_help(const CommandLine &line);

// Checks a command line and stores its values in what the options are bound to.
// Throws Error(usage): one line with the option, what was expected there, what was found, and a
// suggestion. `program` is where to look for the command that has an option.
void take_values(const Command &program, const CommandLine &line);

} // namespace keel::cli
