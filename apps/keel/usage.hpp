#pragma once

#include "command_line.hpp"

namespace keel::cli {

// True if the command line asks for help. Throws Error(usage) if the command line names an unknown
// command.
bool asks_for_help(const CommandLine &line);

// Checks a command line, and stores its values in the variables of the options. Throws Error(usage)
// with one line: the option, what was expected, what was found, and a suggestion. For an unknown
// option, searches `program` for a command that has this option.
void take_values(const Command &program, const CommandLine &line);

} // namespace keel::cli
