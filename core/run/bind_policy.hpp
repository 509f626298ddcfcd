#pragma once

#include "config/config.hpp"
#include "kv/evict/policy_setup.hpp"
#include "run/bind_plugin.hpp"
#include "run/engine.hpp"

#include <memory>

namespace keel {

// Settings that all sequences under a policy share and that are not in the config's policy section.
struct PolicyContext {
    const ModelConfig &model;
    std::shared_ptr<HostServices> host;
    std::shared_ptr<SystemMonitor> monitor;
    bool has_system_prompt;        // sequences can call CacheManager::protect_prefix
    bool several_policies = false; // see PipelineOptions
};

// A policy section with its policy and its allocator.
struct PolicyBinding {
    BoundPlugin policy;
    BoundPlugin allocator; // `library` is NULL under a policy that keeps all slots
    CacheConfig cache;     // the settings for all layers; they point to the parameters of the
                           // plugins
};

// Binds the allocator and the settings of config.policy to its policy, which bind_plugin() has
// bound. Throws Error(input) if the section asks for something that the policy cannot do. `engine`
// must have layers on which the policy acts. The policy declares its needs for the sizes of these
// layers.
PolicyBinding bind_policy(const pipeline::PipelineConfig &config, BoundPlugin policy,
                          const PolicyContext &context, const Engine &engine);
// Returns the settings for the caches of an engine: which layers of the model these caches hold,
// and which of these layers have a window. If the policy acts on no layer of the engine, the
// settings have no policy.
CacheConfig cache_of_engine(const CacheConfig &all, const ModelConfig &model, const Engine &engine);
// Warns about each key that has no effect because the policy never evicts.
void warn_without_effect(const pipeline::PipelineConfig &config, const std::string &policy);

} // namespace keel
