#include "schedule/policy_list.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "config/schema.hpp"
#include "plugin/registry.hpp"

namespace keel {
namespace {

ListedPolicy listed(const PluginLibrary &library, const std::string &name) {
    ListedPolicy policy{name, library.doc(), {}};
    for (const ParamSpec &spec : library.params().specs()) {
        policy.params.push_back(
            {"params." + spec.key, spec.default_text, spec.expects(), spec.doc});
    }
    return policy;
}

} // namespace

std::vector<ListedPolicy> list_policies() {
    PluginRegistry &registry = PluginRegistry::process();
    std::vector<ListedPolicy> policies;
    for (const PluginFile &file : registry.list()) {
        if (file.shadowed) continue;
        try {
            const PluginLibrary &library = registry.get(file.name, {});
            if (library.kind() == KEEL_PLUGIN_POLICY)
                policies.push_back(listed(library, file.name));
        } catch (const Error &error) {
            log().warn("{}", error.what());
        }
    }
    return policies;
}

std::vector<PolicyKeyFacts> list_policy_keys() {
    constexpr std::string_view section = "policy.";
    std::vector<PolicyKeyFacts> keys;
    for (const auto &key : pipeline::schema().keys) {
        if (!key->path.starts_with(section)) continue;
        std::string name(key->path.substr(section.size()));
        // A request chooses parameters one by one, and no files. See PolicyChoices.
        if (name == "params" || name == "allocator.params" || name == "log" ||
            name == "log_positions")
            continue;
        if (name == "plugin") name = "name";
        if (name == "allocator.plugin") name = "allocator.name";
        keys.push_back({std::move(name), key->default_text(), key->expectation(), key->doc});
    }
    return keys;
}

} // namespace keel
