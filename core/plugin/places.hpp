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

    // The place in the config that a plugin's message is about: that of the first parameter whose
    // key is a word of the message, else that of the plugin. (A plugin gives no place, only words.)
    const SourceLocation &of(std::string_view message) const;
    // "FILE:LINE:COLUMN: " in front of an error with that message; empty if nothing is known.
    std::string prefix(std::string_view message) const { return prefix(of(message)); }
    static std::string prefix(const SourceLocation &at);
    // Throws Error(plugin). Its text is the formatted text after the place of(message).
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
