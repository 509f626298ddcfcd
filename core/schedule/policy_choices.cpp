#include "schedule/policy_choices.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "config/config_writer.hpp"
#include "config/schema.hpp"
#include "plugin/registry.hpp"

#include <algorithm>
#include <cctype>

namespace keel {
namespace {

constexpr size_t most_keys = 64, most_bytes = 16384;

// The values of all keys of the section `policy`, as text.
std::vector<pipeline::ResolvedKey> policy_keys(const pipeline::PipelineConfig &config) {
    std::vector<pipeline::ResolvedKey> keys;
    for (const auto &key : pipeline::schema().keys)
        if (key->path.starts_with("policy.")) key->list(config, keys);
    return keys;
}

std::string key_of(const pipeline::PolicySection &section) {
    pipeline::PipelineConfig config;
    config.policy = section;
    std::string text;
    for (const pipeline::ResolvedKey &key : policy_keys(config))
        text += key.path + '=' + key.value + '\n';
    return text;
}

// Returns the key of the pipeline file. Throws for a key that is not text of a usual form, because
// the parser of overrides would report such a key as an error of the command line.
std::string path_of(const std::string &key) {
    const bool is_usual =
        !key.empty() && key.size() <= 100 && std::ranges::all_of(key, [](unsigned char c) {
            return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
        });
    if (!is_usual || key.starts_with('.') || key.ends_with('.') ||
        key.find("..") != std::string::npos) {
        throw_error(ErrorKind::input,
                    "policy: expected keys such as name, budget.tokens or params.window, found "
                    "'{}'",
                    printable(key, 80));
    }
    if (key == "log" || key == "log_positions") {
        throw_error(ErrorKind::input,
                    "policy.{}: a request must not write files; set the key in the pipeline's file",
                    key);
    }
    if (key == "name") return "policy.plugin";
    if (key == "allocator.name") return "policy.allocator.plugin";
    return "policy." + key;
}

} // namespace

PolicyChoices::PolicyChoices(Pipeline &pipeline)
    : pipeline_(pipeline),
      own_(std::make_shared<Setup>(
          Setup{&pipeline.policy_setup(), pipeline.policies().own().policy.library->id()})) {}

PolicyChoices::Lease PolicyChoices::find(const std::optional<PolicyChoice> &choice,
                                         const RunBetweenSteps &between_steps) {
    if (!choice || choice->empty()) return own_;
    const pipeline::PolicySection section = section_of(*choice);
    if (section == pipeline_.config().policy) return own_;
    const std::string key = key_of(section);
    Lease lease = known(key);
    if (!lease) {
        check_paths(section);
        between_steps([&] { lease = make(key, section); });
    }
    check_effect(*choice, *lease);
    return lease;
}

// Refuses a budget that has no effect.
void PolicyChoices::check_effect(const PolicyChoice &choice, const Setup &setup) {
    if (!setup.plan->keeps_all()) return;
    for (const auto &[key, value] : choice) {
        if (!key.starts_with("budget")) continue;
        throw_error(ErrorKind::input,
                    "policy.{}: a budget has no effect under policy '{}', which keeps all tokens; "
                    "choose a policy that evicts, or remove the budget",
                    key, setup.name);
    }
}

PolicyChoices::Lease PolicyChoices::known(const std::string &key) {
    const std::lock_guard lock(mutex_);
    const auto found = made_.find(key);
    if (found == made_.end()) return nullptr;
    found->second->used = ++lookups_;
    return found->second;
}

PolicyChoices::Lease PolicyChoices::make(const std::string &key,
                                         const pipeline::PolicySection &section) {
    if (Lease lease = known(key)) return lease; // another request has made it in the meantime
    drop_unused();
    auto setup = std::make_shared<Setup>();
    setup->plan = &pipeline_.policies().add(section);
    setup->name = setup->plan->config().policy.name;
    const std::lock_guard lock(mutex_);
    setup->used = ++lookups_;
    made_[key] = setup;
    return setup;
}

// Frees the setups that were not used for the longest time, except for the last `most_unused`.
void PolicyChoices::drop_unused() {
    std::vector<std::shared_ptr<Setup>> gone;
    {
        const std::lock_guard lock(mutex_);
        std::vector<std::pair<uint64_t, std::string>> unused;
        for (const auto &[key, setup] : made_)
            if (setup.use_count() == 1) unused.emplace_back(setup->used, key);
        std::sort(unused.begin(), unused.end());
        for (size_t i = 0; i + most_unused <= unused.size(); ++i) {
            const auto found = made_.find(unused[i].second);
            gone.push_back(std::move(found->second));
            made_.erase(found);
        }
    }
    for (const auto &setup : gone) pipeline_.policies().remove(*setup->plan);
}

// The section `policy` of a pipeline file with these keys.
pipeline::PolicySection PolicyChoices::section_of(const PolicyChoice &choice) const {
    size_t bytes = 0;
    for (const auto &[key, value] : choice) bytes += key.size() + value.size();
    if (choice.size() > most_keys || bytes > most_bytes) {
        throw_error(ErrorKind::input,
                    "policy: expected at most {} keys with {} bytes together, found {} keys with "
                    "{} bytes",
                    most_keys, most_bytes, choice.size(), bytes);
    }
    const pipeline::PolicySection &own = pipeline_.config().policy;
    std::string name = *own.plugin, allocator = *own.allocator.plugin;
    std::vector<std::string> given;
    for (const auto &[key, value] : choice) {
        const std::string path = path_of(key);
        if (path == "policy.plugin") name = value;
        if (path == "policy.allocator.plugin") allocator = value;
        given.push_back(path + '=' + value);
    }
    // The values of the file are defaults if the policy is the policy of the file.
    std::vector<std::string> all{"model.path=x", "backend.plugin=cpu"};
    if (name == *own.plugin) {
        for (const pipeline::ResolvedKey &key : policy_keys(pipeline_.config())) {
            // An eviction log has only one writer, so the choice does not inherit it.
            const bool is_default = key.where.file.empty() || key.value.empty() ||
                                    key.path == "policy.log" || key.path == "policy.log_positions";
            const bool is_of_other = allocator != *own.allocator.plugin &&
                                     key.path.starts_with("policy.allocator.params");
            if (!is_default && !is_of_other) all.push_back(key.path + '=' + key.value);
        }
    }
    all.insert(all.end(), given.begin(), given.end());
    return pipeline::config_from_overrides(all, {.option = "request"}).policy;
}

// A request must not make the server load or read files.
void PolicyChoices::check_paths(const pipeline::PolicySection &section) const {
    const pipeline::PolicySection &own = pipeline_.config().policy;
    const auto check = [](const char *key, const pipeline::PluginSection &asked,
                          const pipeline::PluginSection &of_file, keel_plugin_kind kind) {
        const std::string &name = *asked.plugin;
        if (name != *of_file.plugin && is_plugin_path(name)) {
            throw_error(ErrorKind::input,
                        "{}.name: expected the name of an installed plugin, found '{}'", key,
                        printable(name, 80));
        }
        if (asked.params.empty() || name == pipeline::auto_allocator) return;
        const PluginLibrary &library =
            PluginRegistry::process().get(name, kind, asked.plugin.where);
        for (const pipeline::RawParam &param : asked.params) {
            const auto &specs = library.params().specs();
            const auto spec = std::ranges::find(specs, param.key, &ParamSpec::key);
            const bool is_path =
                spec != specs.end() && spec->type == KEEL_PARAM_PATH &&
                std::ranges::find(spec->choices, param.text) == spec->choices.end();
            if (is_path && std::ranges::find(of_file.params, param) == of_file.params.end()) {
                throw_error(ErrorKind::input,
                            "{}.params.{}: a request must not name files; set the parameter in the "
                            "pipeline's file",
                            key, param.key);
            }
        }
    };
    check("policy", section, own, KEEL_PLUGIN_POLICY);
    check("policy.allocator", section.allocator, own.allocator, KEEL_PLUGIN_ALLOCATOR);
}

} // namespace keel
