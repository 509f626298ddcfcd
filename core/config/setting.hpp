#pragma once

#include "base/origin.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace keel::pipeline {

// A value of the pipeline, its key, and the place where it was written.
template <typename T> struct Setting : Origin {
    T value{};

    const T &operator*() const noexcept { return value; }
    const T *operator->() const noexcept { return &value; }
    // Two settings are equal if their values are equal. The comparison ignores the places.
    bool operator==(const Setting &other) const { return value == other.value; }
};

// A parameter of a plugin in the form in which the file has it. The core checks it against the
// plugin's table when it loads the plugin.
struct RawParam {
    std::string key;
    std::string text;               // if the value is a scalar
    std::vector<std::string> items; // the items, if the value is a sequence of scalars
    bool is_null = false;
    bool is_sequence = false;
    // true if the text was in quotes; this does not change its meaning
    bool quoted = false;
    SourceLocation where;     // place of the value
    SourceLocation key_where; // place of the key
    // folder of the file that has the parameter; a relative path starts there
    std::filesystem::path folder;

    bool operator==(const RawParam &other) const {
        return key == other.key && text == other.text && items == other.items &&
               is_null == other.is_null && is_sequence == other.is_sequence;
    }
};

// A plugin and its parameters.
struct PluginSection {
    Setting<std::string> plugin; // a name, or an absolute path, which begins with '/'
    std::vector<RawParam> params;
    bool operator==(const PluginSection &) const = default;
};

} // namespace keel::pipeline
