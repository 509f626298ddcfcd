#include "usage.hpp"

#include "base/display.hpp"
#include "base/suggest.hpp"

#include <fmt/format.h>

namespace keel::cli {
namespace {

// The innermost command that the line names.
const CLI::App *innermost(const CLI::App *app) {
    for (const auto subs = app->get_subcommands(); !subs.empty();)
        return innermost(subs.back());
    return app;
}

std::string full_name(const CLI::App *app) {
    return app->get_parent() == nullptr ? app->get_name()
                                        : full_name(app->get_parent()) + " " + app->get_name();
}

std::vector<std::string> option_names(const CLI::App &app) {
    std::vector<std::string> names;
    for (const CLI::Option *option : app.get_options()) {
        for (const std::string &name : option->get_lnames())
            names.push_back("--" + name);
    }
    return names;
}

std::vector<std::string> command_names(const CLI::App &app) {
    std::vector<std::string> names;
    for (const CLI::App *command : app.get_subcommands([](const CLI::App *) { return true; }))
        names.push_back(command->get_name());
    return names;
}

// "; 'keel run' has it", if another command does.
std::string whose(const CLI::App &root, const std::string &option) {
    for (const CLI::App *command : root.get_subcommands([](const CLI::App *) { return true; })) {
        if (command->get_option_no_throw(option) != nullptr)
            return fmt::format("; '{}' has it", full_name(command));
    }
    return {};
}

std::string unexpected(const CLI::App &root, const CLI::App &command, const std::string &word) {
    const std::string shown = printable(word, 60);
    if (word.starts_with("-") && word.size() > 1) {
        const std::string name = word.substr(0, word.find('='));
        const std::string owner = whose(root, name);
        return fmt::format("unknown option '{}'{}", shown,
                           owner.empty() ? did_you_mean(name, option_names(command)) : owner);
    }
    const std::vector<std::string> names = command_names(command);
    if (!names.empty()) {
        return fmt::format("unknown command '{}'{}", shown,
                           nearest_word(word, names).empty()
                               ? fmt::format("; the commands are {}", fmt::join(names, ", "))
                               : did_you_mean(word, names));
    }
    return fmt::format("one argument too many: '{}'; a text with spaces needs quotes", shown);
}

} // namespace

std::string help_text(const CLI::App &app) {
    return app.help(); // of the command that was named, if one was
}

std::string usage_text(const CLI::App &app, const CLI::ParseError &error) {
    const CLI::App *command = innermost(&app);
    // A word that nothing knows explains more than what is missing because of it.
    const std::vector<std::string> extra = app.remaining(true);
    std::string text = extra.empty() ? error.what() : unexpected(app, *command, extra.front());
    for (char &c : text) {
        if (c == '\n') c = ' ';
    }
    return fmt::format("{}; see '{} --help'", text, full_name(command));
}

} // namespace keel::cli
