#pragma once

#include "base/error.hpp"
#include "base/location.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel {

// Where a config names a plugin and gives its parameters, so that a call that fails later still
// names the line to look at. Empty for a plugin that no config names.
struct PluginPlaces {
    SourceLocation plugin;
    std::vector<std::pair<std::string, SourceLocation>>
        params; // those that the config gives: key, place of the value

    // What to look at for a plugin's message: the first parameter whose key stands in the message
    // as a word, else the plugin. (A plugin says what is wrong in words only.)
    const SourceLocation &of(std::string_view message) const;
    // "FILE:LINE:COLUMN: " in front of an error with that message; empty if nothing is known.
    std::string prefix(std::string_view message) const { return prefix(of(message)); }
    static std::string prefix(const SourceLocation &at);
    // Throws Error(plugin) at of(message), with the text in front of which the place stands.
    template <typename... Args>
    [[noreturn]] void fail(std::string_view message, fmt::format_string<Args...> format,
                           Args &&...args) const {
        const std::string text = fmt::format(format, std::forward<Args>(args)...);
        const SourceLocation &at = of(message);
        if (at.file.empty()) throw Error(ErrorKind::plugin, text);
        throw PlacedError(ErrorKind::plugin, at, text);
    }
};

} // namespace keel
