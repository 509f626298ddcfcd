#pragma once

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

    // Of the first parameter whose key stands in the message as a word, else of the plugin.
    const SourceLocation &of(std::string_view message) const;
    // "FILE:LINE:COLUMN: " in front of an error with that message; empty if nothing is known.
    std::string prefix(std::string_view message) const { return prefix(of(message)); }
    static std::string prefix(const SourceLocation &at);
    // True if the text begins with one of the places: it needs no second one.
    bool begin(std::string_view text) const;
};

} // namespace keel
