#include "config/override.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "config/key_values.hpp"
#include "config/schema.hpp"
#include "config/yaml_text.hpp"

#include <algorithm>
#include <array>

namespace keel::pipeline {
namespace {

using Kind = YamlNode::Kind;
constexpr size_t max_parts = 8;

constexpr std::array<std::string_view, 1> drop_params = {"params"};
constexpr std::array<std::string_view, 2> drop_not_tokens = {"ratio", "mib"};
constexpr std::array<std::string_view, 2> drop_not_ratio = {"tokens", "mib"};
constexpr std::array<std::string_view, 2> drop_not_mib = {"tokens", "ratio"};
constexpr std::array<std::string_view, 2> drop_apart = {"key_dtype", "value_dtype"};
constexpr std::array<std::string_view, 1> drop_ops = {"ops"};
constexpr std::array<std::string_view, 1> drop_every_n = {"every_n"};
constexpr std::array<std::string_view, 1> drop_pressure = {"pressure"};

using When = OverrideRule::When;
constexpr OverrideRule rules[] = {
    {"backend", "plugin", When::changed, drop_params},
    {"policy", "plugin", When::changed, drop_params},
    {"policy.allocator", "plugin", When::changed, drop_params},
    {"policy.budget", "tokens", When::always, drop_not_tokens},
    {"policy.budget", "ratio", When::always, drop_not_ratio},
    {"policy.budget", "mib", When::always, drop_not_mib},
    {"kv", "dtype", When::always, drop_apart},
    {"sync", "strategy", When::lacks, drop_ops, "batched"},
    {"policy.trigger", "on", When::lacks, drop_every_n, "every_n"},
    {"policy.trigger", "on", When::lacks, drop_pressure, "pressure"},
};

bool holds(const YamlNode &node, std::string_view word) {
    if (node.kind == Kind::scalar) return node.text == word;
    return std::any_of(node.items.begin(), node.items.end(),
                       [&](const YamlNode &item) { return item.text == word; });
}

bool same_value(const YamlNode &base, const OverrideRule &rule, const YamlNode &over) {
    const YamlEntry *old = base.find(rule.key);
    const std::string before = old != nullptr
                                   ? old->value.text
                                   : find_key(join_path(rule.section, rule.key))->default_text();
    return over.kind == Kind::scalar && over.text == before;
}

// `complete`: true if `base` is a whole file, false if it is a part of the overrides.
void apply_rules(YamlNode &base, const YamlNode &over, std::string_view section, bool complete) {
    for (const OverrideRule &rule : rules) {
        const YamlEntry *changed = rule.section == section ? over.find(rule.key) : nullptr;
        if (changed == nullptr || changed->value.is_null()) continue;
        const bool drop =
            rule.when == When::always ||
            (rule.when == When::changed && complete && !same_value(base, rule, changed->value)) ||
            (rule.when == When::lacks && !holds(changed->value, rule.word));
        if (!drop) continue;
        for (const std::string_view key : rule.drops) base.erase(key);
    }
}

// Returns true if the map at `path` is merged key by key. Otherwise an override replaces the whole
// map.
bool merges(const std::string &path) {
    const auto *key = find_key(path);
    if (key == nullptr)
        return find_section(path) != nullptr || path.starts_with("hybrid.backends.");
    return key->form() == Form::map;
}

// `backend` and `hybrid` exclude each other. If the override names a backend's plugin, this
// function drops `hybrid`. If the override names the backends of a hybrid, this function drops
// `backend`.
void drop_rival(YamlNode &base, const YamlNode &over) {
    const auto names = [&](std::string_view section, std::string_view key) {
        const YamlEntry *entry = over.find(section);
        return entry != nullptr && entry->value.is_map() && entry->value.find(key) != nullptr;
    };
    if (names("backend", "plugin")) base.erase("hybrid");
    if (names("hybrid", "backends")) base.erase("backend");
}

void merge(YamlNode &base, YamlNode over, const std::string &path, bool complete) {
    if (!base.is_map() || !over.is_map() || !merges(path)) {
        base = std::move(over);
        return;
    }
    if (path.empty()) drop_rival(base, over);
    if (find_section(path) != nullptr) apply_rules(base, over, path, complete);
    if (path.starts_with("hybrid.backends.")) {
        const YamlEntry *before = base.find("plugin"), *after = over.find("plugin");
        if (before != nullptr && after != nullptr && before->value.text != after->value.text)
            base.erase("params"); // the old params belong to the other plugin
    }
    for (YamlEntry &entry : over.entries) {
        if (YamlEntry *old = base.find(entry.key)) {
            old->where = entry.where;
            merge(old->value, std::move(entry.value), join_path(path, entry.key), complete);
        } else {
            base.entries.push_back(std::move(entry));
        }
    }
}

[[noreturn]] void refuse_form(const std::string &argument, std::string_view option) {
    throw_error(ErrorKind::usage,
                "{} {}: expected KEY=VALUE, for example {} policy.budget.tokens=64", option,
                printable(argument, 80), option);
}

std::vector<std::string> split_path(const std::string &argument, std::string_view path,
                                    std::string_view option) {
    std::vector<std::string> parts(1);
    for (const char c : path) {
        if (c == '.') {
            parts.emplace_back();
        } else {
            parts.back() += c;
        }
    }
    const auto bad = [](const std::string &part) {
        return part.empty() || part.find_first_of(" \t\r\n{}[],#") != std::string::npos;
    };
    if (parts.size() > max_parts || std::any_of(parts.begin(), parts.end(), bad))
        refuse_form(argument, option);
    return parts;
}

YamlNode parse_value(std::string_view path, std::string_view text, const YamlSource &source) {
    const auto *key = find_key(path);
    const bool quoted = text.starts_with('"') || text.starts_with('\'');
    if (key == nullptr || key->form() != Form::text || quoted || text == "null" || text == "~")
        return parse_yaml(text, source);
    const YamlLimits limits;
    YamlNode node;
    node.kind = Kind::scalar;
    node.text = YamlText(text, source, limits.bytes).text();
    node.source = std::make_shared<const YamlSource>(source);
    return node;
}

YamlNode parse_override(const std::string &argument, const std::filesystem::path &folder,
                        const OverrideNames &names) {
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) refuse_form(argument, names.option);
    const std::string path = argument.substr(0, equals);
    std::vector<std::string> parts = split_path(argument, path, names.option);
    const auto own = names.of_key.find(path);
    const std::string name = own != names.of_key.end()
                                 ? own->second
                                 : fmt::format("{} {}", names.option, printable(path, 80));
    const YamlSource source{name, folder, true};
    YamlNode node = parse_value(path, std::string_view(argument).substr(equals + 1), source);
    const auto shared = std::make_shared<const YamlSource>(source);
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        YamlNode outer;
        outer.kind = Kind::map;
        outer.source = shared;
        outer.entries.push_back({std::move(*part), {source.name, 0, 0}, std::move(node)});
        node = std::move(outer);
    }
    expand_shorthands(node);
    return node;
}

} // namespace

std::span<const OverrideRule> override_rules() { return rules; }

void merge_overrides(YamlNode &file, YamlNode overrides) {
    expand_shorthands(file);
    expand_shorthands(overrides);
    if (overrides.is_null()) return;
    merge(file, std::move(overrides), "", true);
}

YamlNode parse_overrides(std::span<const std::string> arguments,
                         const std::filesystem::path &folder, const OverrideNames &names) {
    YamlNode all;
    for (const std::string &argument : arguments)
        merge(all, parse_override(argument, folder, names), "", false);
    return all;
}

} // namespace keel::pipeline
