#include "config/hybrid_codec.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"
#include "config/key.hpp"

#include <algorithm>
#include <charconv>

namespace keel::pipeline {
namespace {

// The keys of one backend of `hybrid.backends`.
const KeyList<HybridBackend> &backend_keys() {
    static const KeyList<HybridBackend> all = [] {
        KeyList<HybridBackend> keys;
        keys.add(
            {.path = "plugin", .rule = {.is_plugin = true}},
            [](auto &b) -> auto & { return b.plugin; });
        keys.add(
            {.path = "device"}, [](auto &b) -> auto & { return b.device; }, "auto");
        keys.add_params(
            {.path = "params"}, [](auto &b) -> auto & { return b.params; });
        keys.add(
            {.path = "kv.dtype"}, [](auto &b) -> auto & { return b.kv_dtype; });
        keys.add(
            {.path = "kv.key_dtype"}, [](auto &b) -> auto & { return b.key_dtype; });
        keys.add(
            {.path = "kv.value_dtype"}, [](auto &b) -> auto & { return b.value_dtype; });
        return keys;
    }();
    return all;
}

// The names of the keys and sections inside a section of a backend. For the section "": "plugin,
// device, params, kv".
std::vector<std::string> names_in(std::string_view section) {
    std::vector<std::string> names;
    for (const auto &key : backend_keys()) {
        std::string_view path = key->path;
        if (!section.empty() && !path.starts_with(section)) continue;
        if (!section.empty()) path.remove_prefix(section.size() + 1);
        const std::string name(path.substr(0, path.find('.')));
        if (names.empty() || names.back() != name) names.push_back(name);
    }
    return names;
}

bool is_name(std::string_view text) {
    return !text.empty() && text.size() <= 32 && std::ranges::all_of(text, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '-';
    });
}

void check_name(const YamlEntry &entry, std::string_view path) {
    if (is_name(entry.key)) return;
    throw_at(entry.where, ErrorKind::input,
             "expected a backend's name (letters, digits, _, -; 32 at most) in '{}', found "
             "'{}'",
             path, printable(entry.key, 60));
}

[[noreturn]] void refuse_key(const YamlEntry &entry, std::string_view path,
                             const std::vector<std::string> &known) {
    const std::string near = did_you_mean(entry.key, known);
    throw_at(entry.where, ErrorKind::input, "unknown key '{}' in '{}'{}", printable(entry.key, 60),
             path, near.empty() ? fmt::format("; known keys: {}", fmt::join(known, ", ")) : near);
}

// `section` is "" or "kv". `path` is the path of the backend.
void read_entries(const YamlNode &map, const std::string &section, const std::string &path,
                  HybridBackend &backend) {
    const auto read = [&](const std::string &name, const YamlNode &node) {
        backend_keys().find(name)->read(node, join_path(path, name), backend);
    };
    for (const YamlEntry &entry : map.entries) {
        const std::string name = join_path(section, entry.key);
        const std::vector<std::string> known = names_in(section);
        if (std::ranges::find(known, entry.key) == known.end())
            refuse_key(entry, section.empty() ? path : join_path(path, section), known);
        if (backend_keys().find(name) != nullptr) {
            read(name, entry.value);
        } else if (entry.value.kind == YamlNode::Kind::scalar) {
            read(join_path(name, "dtype"), entry.value); // the short form {kv: f16}
        } else if (entry.value.is_map()) {
            read_entries(entry.value, name, path, backend);
        } else if (!entry.value.is_null()) {
            throw_at(entry.value.where(), ErrorKind::input,
                     "expected a map of {} for '{}', found {}", fmt::join(names_in(name), ", "),
                     join_path(path, name), describe(entry.value));
        }
    }
}

HybridBackend read_backend(const YamlEntry &named, std::string_view parent) {
    const std::string path = join_path(parent, named.key);
    HybridBackend backend;
    backend.name = named.key;
    backend.name_where = named.where;
    for (const auto &key : backend_keys()) key->set_default(join_path(path, key->path), backend);
    if (named.value.kind == YamlNode::Kind::scalar) { // the short form {host: cpu}
        backend_keys().find("plugin")->read(named.value, path + ".plugin", backend);
        return backend;
    }
    if (!named.value.is_map()) {
        throw_at(named.value.where(), ErrorKind::input,
                 "expected a map with the key plugin for '{}', found {}", path,
                 describe(named.value));
    }
    read_entries(named.value, "", path, backend);
    if (backend.plugin->empty()) {
        throw_at(named.value.where(), ErrorKind::input,
                 "expected the key plugin for '{}', found none", path);
    }
    return backend;
}

// A backend as YAML: "{plugin: cpu, device: auto, params: {threads: 2}}".
std::string backend_text(const HybridBackend &backend) {
    std::vector<ResolvedKey> lines;
    for (const auto &key : backend_keys()) key->list(backend, lines);
    std::string text, open;
    for (const ResolvedKey &line : lines) {
        if (line.value.empty() || line.value == "{}") continue;
        const std::string section(parent_path(line.path));
        if (section != open && !open.empty()) text += "}";
        if (!text.empty()) text += ", ";
        if (section != open && !section.empty()) text += section + ": {";
        text += fmt::format("{}: {}", last_part(line.path), line.value);
        open = section;
    }
    return fmt::format("{{{}{}}}", text, open.empty() ? "" : "}");
}

// Reads "0-15", or "3" for one layer.
void read_range(const Field &field, const YamlNode &node, LayerShare &share) {
    constexpr int64_t most = 65535;
    const auto refuse = [&] {
        throw_at(node.where(), ErrorKind::input,
                 "expected FIRST-LAST, two layers from 0 to {} (the range includes both), for "
                 "'range' in '{}', found {}",
                 most, field.path, describe(node));
    };
    if (node.kind != YamlNode::Kind::scalar) refuse();
    const std::string &text = node.text;
    const char *const end = text.data() + text.size();
    const auto [middle, first_error] = std::from_chars(text.data(), end, share.first);
    share.last = share.first;
    const char *stop = middle;
    std::errc last_error{};
    if (first_error == std::errc{} && middle != end && *middle == '-') {
        const auto second = std::from_chars(middle + 1, end, share.last);
        stop = second.ptr;
        last_error = second.ec;
    }
    if (first_error != std::errc{} || last_error != std::errc{} || stop != end || share.first < 0 ||
        share.last < share.first || share.last > most)
        refuse();
    share.where = node.where();
}

LayerShare read_share(const Field &field) {
    if (!field.node.is_map()) fail(field, describe(field.node));
    LayerShare share;
    for (const YamlEntry &entry : field.node.entries) {
        if (entry.key == "range") {
            read_range(field, entry.value, share);
        } else if (entry.key == "on") {
            if (entry.value.kind != YamlNode::Kind::scalar) fail(field, describe(entry.value));
            share.on = entry.value.text;
            share.on_where = entry.value.where();
        } else {
            refuse_key(entry, field.path, {"range", "on"});
        }
    }
    if (share.on.empty() || share.where.file.empty()) {
        throw_at(field.node.where(), ErrorKind::input,
                 "expected the keys range and on in '{}', found no {}", field.path,
                 share.on.empty() ? "on" : "range");
    }
    return share;
}

} // namespace

void Codec<std::vector<HybridBackend>>::read(const Field &field,
                                             std::vector<HybridBackend> &value) {
    if (!field.node.is_map()) fail(field, describe(field.node));
    for (const YamlEntry &entry : field.node.entries) {
        check_name(entry, field.path);
        value.push_back(read_backend(entry, field.path));
    }
    if (value.size() < 2)
        fail(field, fmt::format("{}; with one backend use 'backend'", value.size()));
    constexpr size_t most = 8;
    if (value.size() > most) fail(field, fmt::format("{}; at most {}", value.size(), most));
}

std::string Codec<std::vector<HybridBackend>>::write(const std::vector<HybridBackend> &value,
                                                     const Rule &) {
    std::string text;
    for (const HybridBackend &backend : value)
        text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", yaml_scalar(backend.name),
                            backend_text(backend));
    return "{" + text + "}";
}

std::string Codec<std::vector<HybridBackend>>::expectation(const Rule &) {
    return "a map of two backends or more, {NAME: {plugin: X}, NAME: {plugin: Y}}";
}

void Codec<std::vector<LayerShare>>::read(const Field &field, std::vector<LayerShare> &value) {
    if (field.node.kind != YamlNode::Kind::sequence) fail(field, describe(field.node));
    for (const YamlNode &item : field.node.items) value.push_back(read_share(field.at(item)));
    if (value.empty()) fail(field, "an empty list");
}

std::string Codec<std::vector<LayerShare>>::write(const std::vector<LayerShare> &value,
                                                  const Rule &) {
    std::string text;
    for (const LayerShare &share : value)
        text += fmt::format("{}{{range: {}-{}, on: {}}}", text.empty() ? "" : ", ", share.first,
                            share.last, yaml_scalar(share.on));
    return "[" + text + "]";
}

std::string Codec<std::vector<LayerShare>>::expectation(const Rule &) {
    return "a list of {range: FIRST-LAST, on: NAME}";
}

} // namespace keel::pipeline
