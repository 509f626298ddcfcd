#pragma once

#include "options.hpp"

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel::cli {

// Settings that all commands share: how much they print.
struct Program {
    bool quiet = false; // print only errors and results
    std::string log_level = "info";
    bool verbose = false, version = false;
};

// pairs: a shell line, and its explanation
using Examples = std::vector<std::pair<std::string, std::string>>;

// Adds a command with the options of the group "Messages". The help ends with the examples.
Command &add_command(Command &above, Program &program, const std::string &name,
                     const std::string &doc, const Examples &examples);

// The folder with docs/, configs/ and models/ of an installed program; nullopt if the program is
// not installed.
std::optional<std::string> data_folder();
// Help texts name pages by their path in the source tree (docs/reference/cli.md). For an installed
// program, replaces docs/ by the folder of the installed pages.
std::string with_installed_docs(std::string help);

// Writes JSON to standard output, indented by two spaces. Bytes that are not UTF-8 become U+FFFD.
void print_json(const nlohmann::ordered_json &json);

// One function per command. Each is in the file with the command's name.
void add_run(Command &keel, Program &program);
void add_chat(Command &keel, Program &program);
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
