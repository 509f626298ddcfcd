// The parts of `hybrid:` that have a form of their own.
#include "config/read_value.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"

#include <algorithm>
#include <charconv>

namespace keel::pipeline {
namespace {

bool is_name(std::string_view text) {
    return !text.empty() && text.size() <= 32 && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
               c == '-';
    });
}

void check_name(const YamlEntry &entry, std::string_view path) {
    if (is_name(entry.key)) return;
    throw_error(ErrorKind::input,
                "{}: expected a backend's name (letters, digits, _, -; 32 at most) in '{}', found '{}'",
                to_string(entry.where), path, printable(entry.key, 60));
}

[[noreturn]] void refuse_key(const YamlEntry &entry, const std::string &path,
                             const std::vector<std::string> &known) {
    const std::string near = did_you_mean(entry.key, known);
    throw_error(ErrorKind::input, "{}: unknown key '{}' in '{}'{}", to_string(entry.where),
                printable(entry.key, 60), path,
                near.empty() ? fmt::format("; known keys: {}", fmt::join(known, ", ")) : near);
}

// A value as the schema's key `like` has it, for a key of another place.
template <typename T>
void decode_as(std::string_view like, const std::string &path, const YamlNode &node, Setting<T> &setting) {
    KeySpec key = *find_key(like);
    key.path = path;
    decode(Field{key, node}, setting.value);
    setting.where = node.where();
}

void decode_kv(const std::string &path, const YamlNode &node, HybridBackend &backend) {
    if (node.kind == YamlNode::Kind::scalar) {
        return decode_as("kv.key_dtype", path + ".dtype", node, backend.kv_dtype);
    }
    if (!node.is_map()) {
        throw_error(ErrorKind::input,
                    "{}: expected a map of dtype, key_dtype, value_dtype for '{}', found {}",
                    to_string(node.where()), path, describe(node));
    }
    for (const YamlEntry &entry : node.entries) {
        const std::string key_path = join_path(path, entry.key);
        if (entry.key == "dtype") {
            decode_as("kv.key_dtype", key_path, entry.value, backend.kv_dtype);
        } else if (entry.key == "key_dtype") {
            decode_as("kv.key_dtype", key_path, entry.value, backend.key_dtype);
        } else if (entry.key == "value_dtype") {
            decode_as("kv.value_dtype", key_path, entry.value, backend.value_dtype);
        } else {
            refuse_key(entry, path, {"dtype", "key_dtype", "value_dtype"});
        }
    }
}

HybridBackend decode_backend(const YamlEntry &named) {
    const std::string path = join_path("hybrid.backends", named.key);
    HybridBackend backend;
    backend.name = named.key;
    backend.name_where = named.where;
    backend.device.value = "auto";
    if (named.value.kind == YamlNode::Kind::scalar) { // {host: cpu}
        decode_as("backend.plugin", path + ".plugin", named.value, backend.plugin);
        return backend;
    }
    if (!named.value.is_map()) {
        throw_error(ErrorKind::input, "{}: expected a map with the key plugin for '{}', found {}",
                    to_string(named.value.where()), path, describe(named.value));
    }
    for (const YamlEntry &entry : named.value.entries) {
        const std::string key_path = join_path(path, entry.key);
        if (entry.key == "plugin") {
            decode_as("backend.plugin", key_path, entry.value, backend.plugin);
        } else if (entry.key == "device") {
            decode_as("backend.device", key_path, entry.value, backend.device);
        } else if (entry.key == "params") {
            KeySpec key = *find_key("backend.params");
            key.path = key_path;
            decode(Field{key, entry.value}, backend.params);
        } else if (entry.key == "kv") {
            if (!entry.value.is_null()) decode_kv(key_path, entry.value, backend);
        } else {
            refuse_key(entry, path, {"plugin", "device", "params", "kv"});
        }
    }
    if (backend.plugin->empty()) {
        throw_error(ErrorKind::input, "{}: expected the key plugin for '{}', found none",
                    to_string(named.value.where()), path);
    }
    return backend;
}

// "0-15", or "3" for one layer.
void decode_range(const Field &field, const YamlNode &node, LayerShare &share) {
    constexpr int64_t most = 65535;
    const auto refuse = [&] {
        throw_error(ErrorKind::input,
                    "{}: expected FIRST-LAST, layers from 0 to {} of which both belong to it, for 'range' in "
                    "'{}', found {}",
                    to_string(node.where()), most, field.key.path, describe(node));
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

} // namespace

void decode(const Field &field, std::vector<HybridBackend> &value) {
    if (!field.node.is_map()) fail(field, describe(field.node));
    for (const YamlEntry &entry : field.node.entries) {
        check_name(entry, field.key.path);
        value.push_back(decode_backend(entry));
    }
    if (value.size() < 2) fail(field, fmt::format("{}; with one backend use 'backend'", value.size()));
    constexpr size_t most = 8;
    if (value.size() > most) fail(field, fmt::format("{}; at most {}", value.size(), most));
}

void decode(const Field &field, std::vector<LayerShare> &value) {
    if (field.node.kind != YamlNode::Kind::sequence) fail(field, describe(field.node));
    for (const YamlNode &item : field.node.items) {
        const Field one{field.key, item};
        if (!item.is_map()) fail(one, describe(item));
        LayerShare share;
        for (const YamlEntry &entry : item.entries) {
            if (entry.key == "range") {
                decode_range(one, entry.value, share);
            } else if (entry.key == "on") {
                if (entry.value.kind != YamlNode::Kind::scalar) fail(one, describe(entry.value));
                share.on = entry.value.text;
                share.on_where = entry.value.where();
            } else {
                refuse_key(entry, std::string(field.key.path), {"range", "on"});
            }
        }
        if (share.on.empty() || share.where.file.empty()) {
            throw_error(ErrorKind::input, "{}: expected the keys range and on in '{}', found no {}",
                        to_string(item.where()), field.key.path, share.on.empty() ? "on" : "range");
        }
        value.push_back(std::move(share));
    }
    if (value.empty()) fail(field, "an empty list");
}

} // namespace keel::pipeline
