#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel::cli {

// What the commands share. Parsing a command line only settles `action`; main() runs it afterwards.
struct Program {
    std::function<int()> action; // of the command that was named; returns the exit code
    bool quiet = false;          // errors and results alone
    std::string log_level = "info";
    bool verbose = false;
    // How errors name what an option gave, and that option: {"--set sampling.seed", "--seed"}. They then name what the user wrote.
    std::vector<std::pair<std::string, std::string>> spelled;
};

// A command with the options that all have. `examples` are lines of a shell, shown at the end of its --help.
CLI::App &add_command(CLI::App &app, Program &program, const std::string &name, const std::string &doc,
                      const std::vector<std::pair<std::string, std::string>> &examples);

// What the command does once everything was parsed.
void set_action(CLI::App &command, Program &program, std::function<int()> action);

// Standard output as JSON, two spaces deep; bytes that are not UTF-8 become U+FFFD.
void print_json(const nlohmann::ordered_json &json);

// Rows as columns, two spaces between; the last column is not padded.
std::string table(const std::vector<std::vector<std::string>> &rows, const std::string &indent = "");

// One function per command, each in the file of its name.
void add_run(CLI::App &app, Program &program);
void add_chat(CLI::App &app, Program &program);
void add_bench(CLI::App &app, Program &program);
void add_compare(CLI::App &app, Program &program);
void add_ab(CLI::App &app, Program &program);
void add_eval(CLI::App &app, Program &program);
void add_replay_op(CLI::App &app, Program &program);
void add_inspect(CLI::App &app, Program &program);
void add_quantize(CLI::App &app, Program &program);
void add_tokenize(CLI::App &app, Program &program);
void add_plugins(CLI::App &app, Program &program);
void add_config(CLI::App &app, Program &program);

} // namespace keel::cli
