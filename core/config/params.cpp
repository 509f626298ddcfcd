#include "config/params.hpp"

#include "platform/paths.hpp"
#include "plugin/registry.hpp"

#include <algorithm>

namespace keel::pipeline {

std::vector<RawParam *> path_params(PluginSection &section, keel_plugin_kind kind) {
    std::vector<RawParam *> found;
    // The allocators that `auto` can choose have no parameter that is a path.
    if (section.params.empty() || *section.plugin == "reference" ||
        (kind == KEEL_PLUGIN_ALLOCATOR && *section.plugin == auto_allocator))
        return found;
    const PluginLibrary &library =
        PluginRegistry::process().get(*section.plugin, kind, section.plugin.where);
    for (RawParam &param : section.params) {
        const bool is_path =
            std::ranges::any_of(library.params().specs(), [&](const ParamSpec &spec) {
                return spec.type == KEEL_PARAM_PATH && spec.key == param.key &&
                       std::ranges::find(spec.choices, param.text) == spec.choices.end();
            });
        if (!is_path || param.is_null || param.is_sequence || param.text.empty()) continue;
        param.text = resolve_path(param.folder, param.text).string();
        found.push_back(&param);
    }
    return found;
}

} // namespace keel::pipeline
