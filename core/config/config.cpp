#include "config/config.hpp"

#include "base/error.hpp"
#include "config/key_values.hpp"
#include "config/override.hpp"
#include "config/schema.hpp"
#include "platform/paths.hpp"

namespace keel::pipeline {
namespace {

[[noreturn]] void refuse_missing(const YamlNode &root, std::string_view path) {
    const std::string name = root.source ? root.source->name : "a pipeline without a file";
    throw_error(ErrorKind::input,
                "{}: expected the key '{}', found none; for example '{}: {{{}: {}}}'", name, path,
                parent_path(path), last_part(path), find_key(path)->example);
}

PipelineConfig with_overrides(YamlNode root, std::span<const std::string> overrides,
                              const OverrideNames &names = {}) {
    merge_overrides(root, parse_overrides(overrides, absolute_path("."), names));
    return make_config(root);
}

// Without this check, the schema's message for an empty file would list every key.
void refuse_empty(const YamlNode &root) {
    if (!root.is_null()) return;
    throw_at(root.where(), ErrorKind::input,
             "expected a pipeline, found nothing; 'keel config init MODEL' writes one");
}

} // namespace

PipelineConfig make_config(const YamlNode &tree) {
    YamlNode root = tree;
    expand_shorthands(root);
    const KeyValues values = collect_values(root);
    PipelineConfig config;
    for (const auto &key : schema().keys) {
        const std::string path(key->path);
        key->set_default(path, config);
        const auto given = values.find(path);
        if (given != values.end() && !(given->second->is_null() && key->may_be_empty()))
            key->read(*given->second, path, config);
        else if (key->required)
            refuse_missing(root, path);
    }
    check_hybrid(config);
    if (!config.hybrid.is_given() && config.backend.plugin->empty())
        refuse_missing(root, "backend.plugin");
    check_sync(config.sync);
    check_log(config.policy);
    return config;
}

PipelineConfig load_config(const std::filesystem::path &path,
                           std::span<const std::string> overrides, const OverrideNames &names) {
    YamlNode root = load_yaml(path);
    refuse_empty(root);
    if (!root.is_map())
        return make_config(root); // reports errors of the file before overrides change it
    return with_overrides(std::move(root), overrides, names);
}

PipelineConfig parse_config(std::string_view text, const std::string &name,
                            const std::filesystem::path &folder,
                            std::span<const std::string> overrides) {
    YamlNode root = parse_yaml(text, {name, folder});
    refuse_empty(root);
    if (!root.is_map())
        return make_config(root); // reports errors of the file before overrides change it
    return with_overrides(std::move(root), overrides);
}

PipelineConfig config_from_overrides(std::span<const std::string> overrides,
                                     const OverrideNames &names) {
    YamlNode root;
    root.kind = YamlNode::Kind::map;
    return with_overrides(std::move(root), overrides, names);
}

} // namespace keel::pipeline
