#pragma once

#include "options.hpp"

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel::cli {

// Settings that all commands have. The settings decide how much a command prints.
struct Program {
    bool quiet = false; // print only results and errors
    std::string log_level = "info";
    bool verbose = false, version = false;
};

// Each pair is a shell command and its explanation.
using Examples = std::vector<std::pair<std::string, std::string>>;

// Adds a command with the options of the group "Messages". The help of the command ends with the
// examples.
Command &add_command(Command &above, Program &program, const std::string &name,
                     const std::string &doc, const Examples &examples);

// Returns the folder with docs/, configs/ and models/ of an installed program. Returns nullopt if
// the program is not installed.
std::optional<std::string> data_folder();
// Help texts name pages by their path in the source tree (docs/reference/cli.md). If the program is
// installed, this function replaces docs/ with the folder of the installed pages.
std::string with_installed_docs(std::string help);

// Writes JSON to standard output, indented by two spaces. Replaces bytes that are not valid UTF-8
// by U+FFFD.
void print_json(const nlohmann::ordered_json &json);

// Each of these functions adds one command. Each function is in the file that has the name of its
// command.
void add_run(Command &keel, Program &program);
void add_chat(Command &keel, Program &program);
void add_serve(Command &keel, Program &program);
void add_bench(Command &keel, Program &program);
void add_compare(Command &keel, Program &program);
void add_ab(Command &keel, Program &program);
void add_eval(Command &keel, Program &program);
void add_replay_op(Command &keel, Program &program);
void add_inspect(Command &keel, Program &program);
void add_quantize(Command &keel, Program &program);
void add_tokenize(Command &keel, Program &program);
void add_plugins(Command &keel, Program &program);
void add_config(Command &keel, Program &program);

} // namespace keel::cli
