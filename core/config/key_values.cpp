#include "config/key_values.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "config/schema.hpp"

namespace keel::pipeline {
namespace {

void expand(YamlNode &node, std::string_view path) {
    const SectionSpec *section = find_section(path);
    if (section == nullptr) return;
    if (node.kind == YamlNode::Kind::scalar || node.kind == YamlNode::Kind::sequence) {
        if (section->shorthand.empty()) return;
        YamlNode map;
        map.kind = YamlNode::Kind::map;
        map.source = node.source;
        map.line = node.line;
        map.column = node.column;
        map.entries.push_back({std::string(section->shorthand), node.where(), std::move(node)});
        node = std::move(map);
    }
    for (YamlEntry &entry : node.entries) {
        if (!entry.key.empty() && entry.key.find('.') == std::string::npos)
            expand(entry.value, join_path(path, entry.key));
    }
}

[[noreturn]] void refuse_unknown(const YamlEntry &entry, std::string_view section) {
    const std::string key = printable(entry.key, 60);
    const std::string end =
        entry.key.find('.') == std::string::npos || find_key(entry.key) == nullptr
            ? key_suggestion(section, entry.key)
            : "; write nested keys as nested maps, for example 'policy: {plugin: none}'";
    throw_at(entry.where, ErrorKind::input, "unknown key '{}' in {}{}", key,
             section.empty() ? "a pipeline" : fmt::format("'{}'", section), end);
}

void collect(const YamlNode &node, const std::string &section, KeyValues &values) {
    if (node.is_null()) return; // all keys of the section are commented out
    if (!node.is_map())
        throw_at(node.where(), ErrorKind::input, "expected a map of keys for {}, found {}",
                 section.empty() ? "a pipeline" : fmt::format("'{}'", section), describe(node));
    for (const YamlEntry &entry : node.entries) {
        // a key that is empty or has a dot could be mistaken for a key of another section
        if (entry.key.empty() || entry.key.find('.') != std::string::npos)
            refuse_unknown(entry, section);
        const std::string path = join_path(section, entry.key);
        if (find_section(path) != nullptr) {
            collect(entry.value, path, values);
        } else if (find_key(path) == nullptr) {
            refuse_unknown(entry, section);
        } else {
            values.emplace(path, &entry.value);
        }
    }
}

} // namespace

void expand_shorthands(YamlNode &root) { expand(root, ""); }

KeyValues collect_values(const YamlNode &root) {
    KeyValues values;
    collect(root, "", values);
    return values;
}

} // namespace keel::pipeline
