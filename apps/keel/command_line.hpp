#pragma once

#include "options.hpp"

#include <map>

namespace keel::cli {

// A parsed command line: the command that it names, and the words that belong to each option.
// Nothing is validated yet; usage.hpp does that.
struct CommandLine {
    const Command *command = nullptr;
    bool is_standard = false; // no subcommand was named, so `command` is the group's `standard`
    Words words;              // after the command's name, as the user wrote them
    std::map<const Option *, Words> values; // only options that are given; a flag's value is "true"
    Words unknown;                          // words that belong to no option
    bool lacks_value = false;               // the last word is an option without its value
};

// The first words name the command. Each is a subcommand of the one before. If no subcommand
// follows, `standard` of the last command is used, if it is set.
CommandLine read_command_line(const Command &program, const Words &words);

// The help of a command. If it has a `standard` subcommand, the help includes the options of that
// subcommand.
std::string help_text(const Command &command);

} // namespace keel::cli
