#include "usage.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace keel::cli {
namespace {

template <typename... Args>
[[noreturn]] void refuse(const Command &command, fmt::format_string<Args...> format,
                         Args &&...args) {
    throw_error(ErrorKind::usage, "{}; see '{} --help'",
                fmt::format(format, std::forward<Args>(args)...), command.full_name());
}

std::string shown(const std::string &word) { return fmt::format("'{}'", printable(word, 60)); }

Words command_names(const Command &command) {
    Words names;
    for (const Command &below : command.commands) names.push_back(below.name);
    return names;
}

bool only_holds_commands(const Command &command) {
    return !command.commands.empty() && command.standard == nullptr;
}

// Returns the first command that has this option: `command` itself or a command below `command`.
// Returns NULL if no command has this option.
const Command *owner_of(const Command &command, std::string_view option) {
    if (command.find_option(option) != nullptr) return &command;
    for (const Command &below : command.commands) {
        if (const Command *owner = owner_of(below, option)) return owner;
    }
    return nullptr;
}

// Returns the name by which the user called an option with two names.
const std::string &as_written(const Option &option, const Words &words) {
    const std::string &first = option.names.front();
    const bool is_short = std::any_of(words.begin(), words.end(), [&](const std::string &word) {
        return word.starts_with(first) && !word.starts_with("--");
    });
    return is_short ? first : option.name();
}

[[noreturn]] void refuse_unknown_command(const Command &command, const std::string &word) {
    const Words names = command_names(command);
    const std::string suggestion = did_you_mean(word, names);
    refuse(command, "unknown command {}{}", shown(word),
           suggestion.empty() ? fmt::format("; the commands are {}", fmt::join(names, ", "))
                              : suggestion);
}

[[noreturn]] void refuse_unknown(const Command &program, const CommandLine &line) {
    const Command &command = *line.command;
    const std::string &word = line.unknown.front();
    if (word.starts_with("-=")) { // the parser turns the rest of "-q=4" into "-=4"
        const auto whole =
            std::find_if(line.words.begin(), line.words.end(), [&](const std::string &w) {
                return w.starts_with('-') && w.ends_with(word.substr(1));
            });
        const std::string flag =
            whole == line.words.end() ? "a flag" : whole->substr(0, whole->find('='));
        refuse(command, "{}: expected no value, found {}", flag, shown(word.substr(2)));
    }
    if (word.starts_with("-") && word.size() > 1) {
        const std::string name = word.substr(0, word.find('='));
        if (const Command *owner = owner_of(program, name))
            refuse(command, "unknown option {}; '{}' has this option", shown(word),
                   owner->full_name());
        Words names;
        for (const Option &option : command.options) {
            if (option.kind != Option::Kind::argument) names.push_back(option.name());
        }
        refuse(command, "unknown option {}{}", shown(word), did_you_mean(name, names));
    }
    if (only_holds_commands(command)) refuse_unknown_command(command, word);
    const bool is_standard = command.parent != nullptr && command.parent->standard == &command;
    refuse(command, "unexpected argument {}; a text with spaces needs quotes{}", shown(word),
           is_standard ? fmt::format(", and a command ({}) must follow '{}' directly",
                                     fmt::join(command_names(*command.parent), ", "),
                                     command.parent->full_name())
                       : "");
}

[[noreturn]] void refuse_missing_value(const CommandLine &line) {
    std::string name = line.words.back();
    if (!name.starts_with("--")) name = std::string("-") + name.back(); // for example -n in "-qn"
    const Option *option = line.command->find_option(name);
    refuse(*line.command, "{}: expected {} after this option, found none", name,
           option == nullptr ? "a value" : option->value_name);
}

[[noreturn]] void refuse_missing(const Command &command, const Option &option) {
    std::string doc = option.doc;
    const bool is_word =
        // a capitalized word, unlike "GGUF"
        doc.size() > 1 && (doc[1] == ' ' || (doc[1] >= 'a' && doc[1] <= 'z'));
    if (is_word && doc[0] >= 'A' && doc[0] <= 'Z') doc[0] = static_cast<char>(doc[0] - 'A' + 'a');
    refuse(command, "expected {0}, found none; {0} is: {1}", option.name(), doc);
}

bool is_within(const Option::Range &range, const std::string &word) {
    const double number = std::strtod(word.c_str(), nullptr);
    return number >= range.low && number <= range.high; // false for "nan" too
}

// Stores one value: a whole word, or a part between commas.
void take_value(const CommandLine &line, const Option &option, const std::string &word) {
    const std::string &name = as_written(option, line.words);
    const auto &choices = option.choices;
    if (!choices.empty() && std::find(choices.begin(), choices.end(), word) == choices.end())
        refuse(*line.command, "{}: expected one of {}, found {}{}", name, fmt::join(choices, ", "),
               shown(word), did_you_mean(word, choices));
    if (option.take(word) && (!option.bounds || is_within(*option.bounds, word))) return;
    std::string expected = option.accepts;
    if (option.bounds)
        expected +=
            fmt::format(" from {:.15g} to {:.15g}", option.bounds->low, option.bounds->high);
    if (option.splits_at_commas) expected += " separated by ','";
    refuse(*line.command, "{}: expected {}, found {}", name, expected, shown(word));
}

void take_words(const CommandLine &line, const Option &option, const Words &words) {
    const std::string &name = as_written(option, line.words);
    if (option.repeat == Option::Repeat::once && words.size() > 1)
        refuse(*line.command, "{}: expected this option once, found it {} times", name,
               words.size());
    for (const std::string &word : words) {
        const bool is_flag = option.kind == Option::Kind::flag;
        if (is_flag && word != "true" && word != "false")
            refuse(*line.command, "{}: expected no value, found {}", name, shown(word));
        if (is_flag && word == "false") continue; // for example "--json=false"
        if (option.repeat == Option::Repeat::last_counts && &word != &words.back()) continue;
        if (!option.splits_at_commas) {
            take_value(line, option, word);
            continue;
        }
        for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
            end = word.find(',', begin);
            take_value(line, option, word.substr(begin, end - begin));
        }
    }
}

// Checks required options, and options that need or exclude each other.
void check_company(const CommandLine &line, const Option &option) {
    const Command &command = *line.command;
    const bool is_given = line.values.contains(&option);
    if (option.is_required && !is_given) refuse_missing(command, option);
    if (!is_given) return;
    const std::string &name = as_written(option, line.words);
    for (const std::string &other : option.needed) {
        if (!line.values.contains(command.find_option(other)))
            refuse(command, "{}: expected {} too, found none", name, other);
    }
    for (const Option &other : command.options) {
        if (exclude_each_other(option, other) && line.values.contains(&other))
            refuse(command, "{} and {} exclude each other; use only one of them", name,
                   as_written(other, line.words));
    }
}

// For 'keel ab WORD --help': throws Error(usage) if WORD is not a file, because WORD is then
// probably a misspelled command.
void refuse_missing_target(const CommandLine &line) {
    for (const Option &option : line.command->options) {
        const auto given = line.values.find(&option);
        if (option.kind != Option::Kind::argument || given == line.values.end()) continue;
        const std::string &word = given->second.front();
        std::error_code ignored;
        if (!std::filesystem::exists(word, ignored))
            refuse_unknown_command(*line.command->parent, word);
    }
}

} // namespace

bool asks_for_help(const CommandLine &line) {
    if (only_holds_commands(*line.command)) {
        for (const std::string &word : line.unknown) {
            if (!word.starts_with('-')) refuse_unknown_command(*line.command, word);
        }
    }
    const bool is_asked = line.values.contains(&line.command->help());
    if (is_asked && line.is_standard) refuse_missing_target(line);
    return is_asked;
}

void take_values(const Command &program, const CommandLine &line) {
    const Command &command = *line.command;
    if (!line.unknown.empty()) refuse_unknown(program, line);
    if (line.lacks_value) refuse_missing_value(line);
    for (const Option &option : command.options) {
        if (const auto at = line.values.find(&option); at != line.values.end())
            take_words(line, option, at->second);
    }
    for (const Option &option : command.options) check_company(line, option);
    if (!command.action)
        refuse(command, "expected a command, found none; the commands are {}",
               fmt::join(command_names(command), ", "));
}

} // namespace keel::cli
