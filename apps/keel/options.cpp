#include "options.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace keel::cli {
namespace {

bool has_name_of(const Words &names, const Option &option) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string &name) { return option.is_called(name); });
}

} // namespace

bool Option::is_called(std::string_view name) const {
    return std::find(names.begin(), names.end(), name) != names.end();
}

bool exclude_each_other(const Option &a, const Option &b) {
    return has_name_of(a.excluded, b) || has_name_of(b.excluded, a);
}

Option &Option::group(std::string title) {
    group_name = std::move(title);
    return *this;
}

Option &Option::required() {
    is_required = true;
    return *this;
}

Option &Option::optional() {
    is_required = false;
    return *this;
}

Option &Option::many() {
    takes_many = true;
    repeat = Repeat::all_count;
    return *this;
}

Option &Option::last_counts() {
    repeat = Repeat::last_counts;
    return *this;
}

Option &Option::range(double low, double high) {
    bounds = Range{low, high};
    return *this;
}

Option &Option::one_of(Words words) {
    choices = std::move(words);
    doc += fmt::format(": {}", fmt::join(choices, ", "));
    return *this;
}

Option &Option::shows_default() {
    doc += fmt::format(" (default: {})", initial);
    return *this;
}

Option &Option::needs(Words options) {
    needed = std::move(options);
    return *this;
}

Option &Option::excludes(Words options) {
    excluded = std::move(options);
    return *this;
}

Command::Command(std::string called, std::string about, std::string help_doc)
    : name(std::move(called)), doc(std::move(about)) {
    flag(
        "-h,--help", [] {}, std::move(help_doc));
}

Command &Command::add_command(std::string called, std::string about) {
    Command &command = commands.emplace_back(std::move(called), std::move(about));
    command.parent = this;
    return command;
}

Option &Command::option(std::string_view spelling, std::function<void(const std::string &)> take,
                        std::string about) {
    Option &option = declare(Option::Kind::option, spelling, std::move(about));
    option.take = [take = std::move(take)](const std::string &word) {
        take(word);
        return true;
    };
    return option;
}

Option &Command::flag(std::string_view spelling, bool &value, std::string about, bool to) {
    return flag(
        spelling, [&value, to] { value = to; }, std::move(about));
}

Option &Command::flag(std::string_view spelling, std::function<void()> take, std::string about) {
    Option &option = declare(Option::Kind::flag, spelling, std::move(about));
    option.take = [take = std::move(take)](const std::string &) {
        take();
        return true;
    };
    return option.last_counts();
}

Option &Command::declare(Option::Kind kind, std::string_view spelling, std::string about) {
    Option &option = options.emplace_back();
    option.kind = kind;
    option.doc = std::move(about);
    option.is_required = kind == Option::Kind::argument;
    const size_t space = spelling.find(' ');
    if (space != std::string_view::npos) option.value_name = spelling.substr(space + 1);
    std::string_view names = spelling.substr(0, space);
    for (size_t comma; (comma = names.find(',')) != std::string_view::npos;
         names.remove_prefix(comma + 1))
        option.names.emplace_back(names.substr(0, comma));
    option.names.emplace_back(names);
    return option;
}

std::string Command::full_name() const {
    if (parent == nullptr) return name;
    return parent->standard == this ? parent->full_name() : parent->full_name() + " " + name;
}

const Option *Command::find_option(std::string_view called) const {
    for (const Option &option : options) {
        if (option.is_called(called)) return &option;
    }
    return nullptr;
}

const Command *Command::find_command(std::string_view called) const {
    for (const Command &command : commands) {
        if (command.name == called) return &command;
    }
    return nullptr;
}

} // namespace keel::cli
