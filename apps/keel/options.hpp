#pragma once

#include <charconv>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace keel::cli {

using Words = std::vector<std::string>;

// Declares one flag ("--json"), option ("-o,--output DIR") or argument ("TARGET") of a command. A
// declaration has the names, the allowed values, the help, and a function that takes the value. The
// setters below return the option, so that a declaration can be one expression.
struct Option {
    enum class Kind { flag, option, argument };
    enum class Repeat { once, last_counts, all_count };
    struct Range {
        double low, high;
    };

    Kind kind;
    Words names; // for example "-o", "--output"; for an argument "TARGET"
    std::string value_name, doc, group_name = "Options";
    std::string accepts; // the kind of value, for example "an integer"; empty: any text
    bool is_required = false, takes_many = false, splits_at_commas = false;
    Repeat repeat = Repeat::once;
    std::optional<Range> bounds;
    // `needed`: the options that must be given together with this option. `excluded`: the options
    // that must not be given together with this option. If one option excludes a second option, the
    // second option excludes the first option too.
    Words choices, needed, excluded;
    std::string initial; // default value as text
    // Stores one value. Returns false if the value does not match `accepts`.
    std::function<bool(const std::string &)> take;

    const std::string &name() const { return names.back(); } // the long name
    bool is_called(std::string_view name) const;

    Option &group(std::string title);
    Option &required();
    Option &optional();
    Option &many();        // takes all words up to the next option
    Option &last_counts(); // if the option is given twice, the last value counts
    Option &range(double low, double high);
    Option &one_of(Words words); // allows only these words; the help lists them
    Option &shows_default();     // adds "(default: ...)" to the help
    Option &needs(Words options);
    Option &excludes(Words options);
};

bool exclude_each_other(const Option &a, const Option &b);

namespace detail {

template <typename T> struct Element {
    using type = T;
    static T &next(T &value, bool) { return value; }
};
template <typename T> struct Element<std::optional<T>> {
    using type = T;
    static T &next(std::optional<T> &value, bool) { return value.emplace(); }
};
template <typename T> struct Element<std::vector<T>> {
    using type = T;
    // The first value on a command line replaces the defaults.
    static T &next(std::vector<T> &values, bool is_first) {
        if (is_first) values.clear();
        return values.emplace_back();
    }
};
template <typename T> inline constexpr bool is_list = false;
template <typename T> inline constexpr bool is_list<std::vector<T>> = true;

template <typename T> bool read_word(const std::string &word, T &value) {
    if constexpr (std::is_same_v<T, std::string>) {
        value = word;
        return true;
    } else {
        const char *end = word.data() + word.size();
        const auto [stop, error] = std::from_chars(word.data(), end, value);
        return error == std::errc() && stop == end;
    }
}

} // namespace detail

// Declares a command: its options, its subcommands, and its action. take_values() first stores the
// values of the options in the variables that the options are bound to. After that, `action` runs.
struct Command {
    std::string name, doc, footer;
    const Command *parent = nullptr;
    std::list<Option> options; // the first option is --help
    std::list<Command> commands;
    const Command *standard = nullptr; // this subcommand runs if the user names none of `commands`
    // The function returns the exit code. `action` is empty if the command only has subcommands.
    std::function<int()> action;

    Command(std::string called, std::string about, std::string help_doc = "Show this help");
    Command(const Command &) = delete;
    Command &operator=(const Command &) = delete;

    Command &add_command(std::string called, std::string about);

    // Declares an option whose value is stored in `value`: a text, a number, an optional, or a
    // list. A list of texts gets one value each time the option is given. A list of numbers is also
    // split at commas. `spelling` has the names of the option and the name of its value in the
    // help, for example "-o,--output DIR".
    template <typename T>
    requires(!std::is_invocable_v<T &, const std::string &>) Option &option(
        std::string_view spelling, T &value, std::string about) {
        return bind(declare(Option::Kind::option, spelling, std::move(about)), value);
    }
    Option &option(std::string_view spelling, std::function<void(const std::string &)> take,
                   std::string about);
    // Declares an argument. The argument is required, unless .optional() follows.
    template <typename T> Option &argument(std::string_view called, T &value, std::string about) {
        return bind(declare(Option::Kind::argument, called, std::move(about)), value);
    }
    // Declares a flag that sets `value` to `to`.
    Option &flag(std::string_view spelling, bool &value, std::string about, bool to = true);
    Option &flag(std::string_view spelling, std::function<void()> take, std::string about);

    // Returns for example "keel ab compare". A standard subcommand has the name of its parent,
    // because the user can omit the name of the subcommand.
    std::string full_name() const;
    const Option &help() const { return options.front(); }
    const Option *find_option(std::string_view called) const;
    const Command *find_command(std::string_view called) const;

  private:
    Option &declare(Option::Kind kind, std::string_view spelling, std::string about);

    template <typename T> Option &bind(Option &option, T &value) {
        using Element = detail::Element<T>;
        using Value = typename Element::type;
        constexpr bool is_text = std::is_same_v<Value, std::string>;
        if constexpr (detail::is_list<T>) {
            option.repeat = Option::Repeat::all_count;
            option.splits_at_commas = !is_text;
            if (!is_text) option.accepts = "integers";
        } else if constexpr (std::is_same_v<T, std::string>) {
            option.initial = value;
        } else if constexpr (std::is_integral_v<T>) {
            option.initial = std::to_string(value);
        }
        if (!is_text && option.accepts.empty())
            option.accepts = std::is_integral_v<Value> ? "an integer" : "a number";
        option.take = [&value, is_first = true](const std::string &word) mutable {
            return detail::read_word(word, Element::next(value, std::exchange(is_first, false)));
        };
        return option;
    }
};

} // namespace keel::cli
