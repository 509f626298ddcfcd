#pragma once

#include "options.hpp"

#include <map>

namespace keel::cli {

// A command line, taken apart: the command that it names, and which words belong to which option.
// Nothing is checked yet; usage.hpp does that.
struct CommandLine {
    const Command *command = nullptr;
    bool is_standard = false; // no subcommand was named, so `command` is the group's `standard`
    Words words;              // after the command's name, as the user wrote them
    std::map<const Option *, Words> values; // of options that are given; a flag's value is "true"
    Words unknown;                          // words that belong to no option
    bool lacks_value = false;               // the last word is an option without its value
};

// The first words name the command, each one a subcommand of the one before. If no subcommand
// follows, `standard` of the last command is used, if it is set.
CommandLine read_command_line(const Command &program, const Words &words);

// The help of a command. If it has a `standard` subcommand, the help includes that one's options.
std::string help_text(const Command &command);

} // namespace keel::cli
