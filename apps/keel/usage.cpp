#include "usage.hpp"

#include "base/display.hpp"
#include "base/suggest.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

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
    if (word.starts_with("-=")) // the rest of "-q=4", once its flag was taken off
        return fmt::format("expected no value behind a flag, found '{}'", shown.substr(2));
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

std::string quoted_list(const std::vector<std::string> &words) {
    std::string out;
    for (const std::string &word : words)
        out += fmt::format("{}'{}'", out.empty() ? "" : " ", printable(word, 60));
    return out;
}

// What the help calls an option's value: "N"; the parser adds what its checks say.
std::string type_of(const CLI::Option &option) {
    const std::string type = option.get_type_name();
    return type.substr(0, type.find(':'));
}

// The same in words.
std::string kind_of_value(const CLI::Option &option) {
    const std::string type = type_of(option);
    if (type.starts_with("N")) return type == "N" ? "an integer" : "integers with ',' between";
    if (type == "X" || type == "MIB") return "a number";
    return type.empty() ? "a value" : type;
}

bool is_flag(const CLI::Option &option) {
    return option.get_items_expected_max() == 0;
}

// "1000000.000000", as std::to_string has it.
std::string plain_number(std::string text) {
    if (text.find('.') == std::string::npos) return text;
    while (text.ends_with('0'))
        text.pop_back();
    if (text.ends_with('.')) text.pop_back();
    return text;
}

// What a validator says, which is one of: "Value X not in range A to B", "X not in {A,B,C}".
std::string outside(const CLI::Option &option, const std::string &message) {
    const std::string found = option.results().empty() ? std::string() : option.results().back();
    const std::string range = "not in range ", set = "not in {";
    if (const size_t at = message.rfind(range); at != std::string::npos) {
        const std::string bounds = message.substr(at + range.size());
        const size_t to = bounds.find(" to ");
        if (to != std::string::npos)
            return fmt::format("expected {} from {} to {}, found '{}'", kind_of_value(option),
                               plain_number(bounds.substr(0, to)), plain_number(bounds.substr(to + 4)),
                               printable(found, 60));
    }
    if (const size_t at = message.rfind(set); at != std::string::npos && message.ends_with('}')) {
        std::vector<std::string> words{{}};
        for (const char c : message.substr(at + set.size(), message.size() - at - set.size() - 1)) {
            if (c == ',') {
                words.emplace_back();
            } else {
                words.back() += c;
            }
        }
        return fmt::format("expected one of {}, found '{}'{}", fmt::join(words, ", "), printable(found, 60),
                           did_you_mean(found, words));
    }
    return message;
}

// Up to `end` (of all, where it is not there): the name that the parser's messages begin with.
std::string before(const std::string &text, std::string_view end) {
    return text.substr(0, text.find(end));
}

std::string missing(const CLI::App &command, const std::string &name) {
    const CLI::Option *option = command.get_option_no_throw(name);
    if (option == nullptr) // of a command that only holds others
        return fmt::format("expected a command, found none; the commands are {}",
                           fmt::join(command_names(command), ", "));
    std::string doc = option->get_description();
    const bool is_word = doc.size() > 1 && (doc[1] == ' ' || (doc[1] >= 'a' && doc[1] <= 'z')); // not "GGUF"
    if (is_word && doc[0] >= 'A' && doc[0] <= 'Z') doc[0] = static_cast<char>(doc[0] - 'A' + 'a');
    return fmt::format("expected {0}, found none; {0} is: {1}", name, doc);
}

// The parser's own sentences in ours: the option, what was expected there, what was found.
std::string in_our_words(const CLI::App &command, const CLI::ParseError &error) {
    const std::string text = error.what();
    if (dynamic_cast<const CLI::RequiredError *>(&error) != nullptr)
        return missing(command, before(text, " is required"));
    if (dynamic_cast<const CLI::ExcludesError *>(&error) != nullptr) {
        const std::string name = before(text, " excludes ");
        return fmt::format("{} and {} exclude each other; give one of them", name,
                           text.substr(std::min(name.size() + 10, text.size())));
    }
    if (dynamic_cast<const CLI::RequiresError *>(&error) != nullptr) {
        const std::string name = before(text, " requires ");
        return fmt::format("{}: expected {} beside it, found none", name,
                           text.substr(std::min(name.size() + 10, text.size())));
    }
    // "Could not convert: --prefill = x"; the others begin with the option.
    constexpr std::string_view convert = "Could not convert: ";
    const std::string name = text.starts_with(convert) ? before(text.substr(convert.size()), " = ")
                                                       : before(before(text, ":"), " was given");
    const CLI::Option *option = command.get_option_no_throw(name);
    if (option == nullptr) return text;
    const std::vector<std::string> &found = option->results();
    if (dynamic_cast<const CLI::ValidationError *>(&error) != nullptr)
        return fmt::format("{}: {}", name, outside(*option, text));
    if (is_flag(*option))
        return fmt::format("{}: expected no value behind it, found {}", name, quoted_list(found));
    if (dynamic_cast<const CLI::ConversionError *>(&error) != nullptr)
        return fmt::format("{}: expected {}, found {}", name, kind_of_value(*option), quoted_list(found));
    if (text.find(" required ") == std::string::npos) return text;
    if (text.find("At Most") != std::string::npos)
        return fmt::format("{}: expected it once, found it {} times", name, found.size());
    return fmt::format("{}: expected {} behind it, found none", name, type_of(*option));
}

} // namespace

std::string help_text(const CLI::App &app) {
    return app.help(); // of the command that was named, if one was
}

std::string usage_text(const CLI::App &app, const CLI::ParseError &error) {
    const CLI::App *command = innermost(&app);
    // A word that nothing knows explains more than what is missing because of it.
    const std::vector<std::string> extra = app.remaining(true);
    std::string text =
        extra.empty() ? in_our_words(*command, error) : unexpected(app, *command, extra.front());
    for (char &c : text) {
        if (c == '\n') c = ' ';
    }
    return fmt::format("{}; see '{} --help'", text, full_name(command));
}

} // namespace keel::cli
