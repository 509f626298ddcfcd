#pragma once

#include "options.hpp"

#include <map>

namespace keel::cli {

// A command line, divided into the command that the line names and the words of each option. The
// values are not checked yet. take_values() in usage.hpp checks the values.
struct CommandLine {
    const Command *command = nullptr;
    bool is_standard = false; // true: no subcommand was named, so `command` is the group's
                              // `standard`
    Words words;              // the words after the command's name, as the user wrote them
    // only options that were given; a flag has the value "true"
    std::map<const Option *, Words> values;
    Words unknown;            // words that belong to no option
    bool lacks_value = false; // the last word is an option that needs a value
};

// Divides a command line. The first words name the command: each word is a subcommand of the word
// before it. If no subcommand follows and the last command has a `standard` subcommand, the result
// is this subcommand.
CommandLine read_command_line(const Command &program, const Words &words);

// Returns the help of a command. If the command has a `standard` subcommand, the help includes the
// options of this subcommand.
std::string help_text(const Command &command);

} // namespace keel::cli
