#pragma once

#include "base/error.hpp"
#include "base/location.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel {

// The places in a config that name a plugin and give its parameters. A call that fails later uses
// these places to name the line of the config. Empty for a plugin that no config names.
struct PluginPlaces {
    SourceLocation plugin;
    std::vector<std::pair<std::string, SourceLocation>>
        params; // for each parameter that the config gives: key, place of the value

    // Returns the place in the config to which a plugin's message refers. A plugin gives only text,
    // no place. If the message contains the key of a parameter as a word, the result is the place
    // of the first such parameter. Otherwise it is the place of the plugin.
    const SourceLocation &of(std::string_view message) const;
    // Returns "FILE:LINE:COLUMN: ", for the front of an error with this message. Empty if no place
    // is known.
    std::string prefix(std::string_view message) const { return prefix(of(message)); }
    static std::string prefix(const SourceLocation &at);
    // Throws Error(plugin). The text is the place of(message), then the formatted text.
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
