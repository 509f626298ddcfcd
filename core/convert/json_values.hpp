#pragma once

#include "base/display.hpp"
#include "base/json_reader.hpp"
#include "text/text_file.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace keel::gguf {

using json = nlohmann::json;
namespace fs = std::filesystem;

// Accessors for values of a tokenizer's JSON files. A value can be missing or have another type.

inline std::string shown(const json &value) {
    return printable(value.dump(-1, ' ', true, json::error_handler_t::replace), 60);
}

inline const json *member(const json &object, const char *key) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

inline std::string text_of(const json &object, const char *key) {
    const json *found = member(object, key);
    return found != nullptr && found->is_string() ? found->get<std::string>() : std::string();
}

inline bool flag_of(const json &object, const char *key, bool fallback = false) {
    const json *found = member(object, key);
    return found != nullptr && found->is_boolean() ? found->get<bool>() : fallback;
}

// Returns the steps of a component. A component of type Sequence has several steps; any other
// component is one step.
inline std::vector<json> steps_of(const json &root, const char *component, const char *list) {
    const json *found = member(root, component);
    if (found == nullptr) return {};
    if (text_of(*found, "type") != "Sequence") return {*found};
    const json *steps = member(*found, list);
    return steps != nullptr && steps->is_array() ? steps->get<std::vector<json>>()
                                                 : std::vector<json>{};
}

inline json read_object(const fs::path &path, const JsonLimits &limits) {
    const std::string text = read_text_file(path, limits.bytes);
    JsonDocument document(text, path.string(), limits);
    (void)document.object();
    return std::move(document).take();
}

} // namespace keel::gguf
