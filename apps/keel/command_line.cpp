// CLI11 assigns words to options and formats the help. Only this file uses CLI11.
#include "command_line.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace keel::cli {
namespace {

// Returns the part of an option's help that describes the option's value. This part is between the
// option's names and the option's description.
std::string help_of_value(const Command &command, const Option &option, bool is_required) {
    std::string text = option.value_name;
    if (option.takes_many) text += " ...";
    if (is_required) text += " REQUIRED";
    if (!option.needed.empty()) text += fmt::format(" Needs: {}", fmt::join(option.needed, " "));
    std::string excluded;
    for (const Option &other : command.options) {
        if (exclude_each_other(option, other)) excluded += " " + other.name();
    }
    if (!excluded.empty()) text += " Excludes:" + excluded;
    return text.starts_with(' ') ? text.substr(1) : text;
}

CLI::Option *declare(CLI::App &app, const Option &option, bool is_required) {
    const std::string names = fmt::format("{}", fmt::join(option.names, ","));
    const bool is_flag = option.kind == Option::Kind::flag;
    CLI::Option *declared = is_flag ? app.add_flag(names) : app.add_option(names);
    declared->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (option.takes_many)
        declared->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args();
    // Because of this call, CLI11 leaves words for the required arguments if an option takes many
    // words.
    if (option.kind == Option::Kind::argument) declared->required(is_required);
    return declared;
}

} // namespace

CommandLine read_command_line(const Command &program, const Words &words) {
    CommandLine line;
    line.command = &program;
    size_t next = 0;
    for (; next < words.size(); ++next) {
        const Command *below = line.command->find_command(words[next]);
        if (below != nullptr) {
            line.command = below;
        } else if (program.find_option(words[next]) != nullptr) { // for example "keel --help run"
            line.words.push_back(words[next]);
        } else {
            break;
        }
    }
    // A group without a subcommand stands for its standard subcommand: 'keel ab FILE' means
    // 'keel ab run FILE'.
    if (line.command->standard != nullptr && line.words.empty()) {
        line.command = line.command->standard;
        line.is_standard = true;
    }
    line.words.insert(line.words.end(), words.begin() + static_cast<std::ptrdiff_t>(next),
                      words.end());

    CLI::App app;
    app.set_help_flag(); // --help is one of the command's own flags, so CLI11 must not add a second
                         // --help
    app.allow_extras();
    std::vector<std::pair<const Option *, const CLI::Option *>> all;
    for (const Option &option : line.command->options)
        all.emplace_back(&option, declare(app, option, option.is_required));
    try {
        std::vector<std::string> backwards(line.words.rbegin(), line.words.rend());
        app.parse(backwards);
    } catch (const CLI::RequiredError &) { // take_values() reports a missing required option
    } catch (const CLI::ArgumentMismatch &) {
        line.lacks_value = true;
    }
    for (const auto &[option, declared] : all) {
        if (declared->count() > 0) line.values[option] = declared->results();
    }
    line.unknown = app.remaining();
    return line;
}

std::string help_text(const Command &command) {
    const bool has_standard = command.standard != nullptr;
    const Command &shown = has_standard ? *command.standard : command;
    CLI::App app(command.doc, command.full_name());
    app.set_help_flag();
    app.require_subcommand(has_standard || command.action ? 0 : 1, 1);
    app.footer(shown.footer);
    for (const Option &option : shown.options) {
        const bool is_required = option.is_required && !has_standard;
        declare(app, option, is_required)
            ->description(option.doc)
            ->group(option.group_name)
            ->option_text(help_of_value(shown, option, is_required));
    }
    for (const Command &below : command.commands) app.add_subcommand(below.name, below.doc);
    return app.help();
}

} // namespace keel::cli
