#pragma once

#include "command_line.hpp"

namespace keel::cli {

// Whether the line asks for help. Throws Error(usage) if it names an unknown command.
bool asks_for_help(const CommandLine &line);

// Checks a command line and stores its values in the variables of the options. Throws Error(usage)
// with one line: the option, what was expected, what was found, and a suggestion. `program` is
// searched for the command that has an option.
void take_values(const Command &program, const CommandLine &line);

} // namespace keel::cli
