#include "server/service/aliases.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "config/yaml_document.hpp"
#include "config/yaml_reader.hpp"

#include <charconv>
#include <nlohmann/json.hpp>

namespace keel::server {
namespace {

using nlohmann::json;
using pipeline::YamlNode;

constexpr size_t most_aliases = 256, longest_alias = 256;

// A YAML scalar as JSON. Text that is written like a number or a flag is one, unless it is quoted.
json scalar_json(const YamlNode &node) {
    const std::string &text = node.text;
    if (node.quoted) return text;
    if (text == "true") return true;
    if (text == "false") return false;
    const char *end = text.data() + text.size();
    int64_t integer = 0;
    if (const auto read = std::from_chars(text.data(), end, integer);
        read.ec == std::errc() && read.ptr == end)
        return integer;
    double number = 0;
    if (const auto read = std::from_chars(text.data(), end, number);
        read.ec == std::errc() && read.ptr == end)
        return number;
    return text;
}

json to_json(const YamlNode &node) {
    switch (node.kind) {
    case YamlNode::Kind::null: return nullptr;
    case YamlNode::Kind::scalar: return scalar_json(node);
    case YamlNode::Kind::sequence: {
        json list = json::array();
        for (const YamlNode &item : node.items) list.push_back(to_json(item));
        return list;
    }
    case YamlNode::Kind::map: break;
    }
    json object = json::object();
    for (const pipeline::YamlEntry &entry : node.entries) object[entry.key] = to_json(entry.value);
    return object;
}

Aliases read_aliases(const YamlNode &root) {
    Aliases aliases;
    if (root.is_null()) return aliases;
    yaml::check_keys(root, "the server's file", {"aliases"});
    const pipeline::YamlEntry *list = root.find("aliases");
    if (list == nullptr || list->value.is_null()) return aliases;
    if (!list->value.is_map())
        yaml::fail(list->value.where(), "aliases: expected a map from names to policies, found " +
                                            pipeline::describe(list->value));
    for (const pipeline::YamlEntry &entry : list->value.entries) {
        if (aliases.size() >= most_aliases)
            yaml::fail(entry.where, fmt::format("expected at most {} aliases", most_aliases));
        if (entry.key.empty() || entry.key.size() > longest_alias)
            yaml::fail(entry.where, fmt::format("expected a name of 1 to {} bytes", longest_alias));
        try {
            const auto document = JsonDocument::of_tree(to_json(entry.value), entry.key);
            aliases.emplace(entry.key, read_keel_fields(document.object()));
        } catch (const JsonError &e) {
            yaml::fail(entry.value.where(),
                       fmt::format("alias {}: {}{}{}", quote_text(entry.key), e.path(),
                                   e.path().empty() ? "" : ": ", e.text()));
        }
    }
    return aliases;
}

} // namespace

Aliases load_aliases(const std::filesystem::path &path) {
    return read_aliases(pipeline::load_yaml(path));
}

Aliases parse_aliases(std::string_view yaml, const std::string &name) {
    return read_aliases(pipeline::parse_yaml(yaml, {name, {}}));
}

} // namespace keel::server
