#include "program.hpp"

#include "console.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

std::string footer(const Examples &examples) {
    if (examples.empty()) return {};
    std::string text = "Examples:\n";
    for (const auto &[line, meaning] : examples)
        text += fmt::format("  {}\n{}", line, meaning.empty() ? "" : fmt::format("      {}\n", meaning));
    text.pop_back();
    return text;
}

// Columns that a text takes on a screen: characters, not bytes.
size_t width(std::string_view text) {
    return static_cast<size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

} // namespace

Command &add_command(Command &above, Program &program, const std::string &name,
                     const std::string &doc, const Examples &examples) {
    Command &command = above.add_command(name, doc);
    command.footer = footer(examples);
    command.flag("-q,--quiet", program.quiet, "Print results and errors alone").group("Messages");
    command.flag("-v,--verbose", program.verbose, "Print what is going on (--log-level debug)")
        .group("Messages");
    command.option("--log-level LEVEL", program.log_level, "How much to say on standard error")
        .one_of({"debug", "info", "warning", "error", "off"})
        .group("Messages");
    return command;
}

void print_json(const nlohmann::ordered_json &json) {
    console().out(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::string table(const std::vector<std::vector<std::string>> &rows, const std::string &indent) {
    std::vector<size_t> widths;
    for (const auto &row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (size_t i = 0; i < row.size(); ++i)
            widths[i] = std::max(widths[i], width(row[i]));
    }
    std::string out;
    for (const auto &row : rows) {
        out += indent;
        for (size_t i = 0; i < row.size(); ++i)
            out += i + 1 == row.size() ? row[i] : row[i] + std::string(widths[i] - width(row[i]) + 2, ' ');
        while (out.ends_with(' '))
            out.pop_back();
        out += '\n';
    }
    return out;
}

} // namespace keel::cli
