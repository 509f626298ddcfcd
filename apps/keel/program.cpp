#include "program.hpp"

#include "console.hpp"

#include "platform/paths.hpp"

#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

std::string footer(const Examples &examples) {
    if (examples.empty()) return {};
    std::string text = "Examples:\n";
    for (const auto &[line, meaning] : examples)
        text += fmt::format("  {}\n{}", line,
                            meaning.empty() ? "" : fmt::format("      {}\n", meaning));
    text.pop_back();
    return text;
}

} // namespace

Command &add_command(Command &above, Program &program, const std::string &name,
                     const std::string &doc, const Examples &examples) {
    Command &command = above.add_command(name, doc);
    command.footer = footer(examples);
    command.flag("-q,--quiet", program.quiet, "Print only results and errors").group("Messages");
    command.flag("-v,--verbose", program.verbose, "Print debug messages too (--log-level debug)")
        .group("Messages");
    command
        .option("--log-level LEVEL", program.log_level,
                "Lowest level of messages on standard error")
        .one_of({"debug", "info", "warning", "error", "off"})
        .group("Messages");
    return command;
}

std::optional<std::string> data_folder() {
    try {
        const auto folder = executable_path().parent_path().parent_path() / "share" / "keel";
        if (std::filesystem::is_directory(folder)) return folder.string();
        // if the program's path is unknown, it counts as not installed
    } catch (const std::exception &) {
    }
    return std::nullopt;
}

std::string with_installed_docs(std::string help) {
    const std::string mark = "docs/";
    const auto data = data_folder();
    if (!data) return help;
    const std::string folder = *data + "/" + mark;
    for (size_t at = help.find(mark); at != std::string::npos;
         at = help.find(mark, at + folder.size()))
        help.replace(at, mark.size(), folder);
    return help;
}

void print_json(const nlohmann::ordered_json &json) {
    console().out(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                  "\n");
}

} // namespace keel::cli
