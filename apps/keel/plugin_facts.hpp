#pragma once

#include "plugin/library.hpp"

#include <string>
#include <vector>

namespace keel::cli {

struct DeviceFacts {
    std::string name, vendor, driver, type;
    uint64_t total_bytes = 0; // 0: unknown
};
// The devices that a backend finds now. Throws Error(plugin) with the backend's message.
std::vector<DeviceFacts> backend_devices(const PluginLibrary &library);

struct PolicyFacts {
    std::string granularity, output;
    std::vector<std::string> needs;  // inputs from the core: "key norms", ...
    std::vector<std::string> traits; // "acts at the end of the prompt only", ...
    uint32_t window = 0, own_budget = 0;
};
// The properties of a policy with its default parameters, for a model of medium size. Throws Error.
PolicyFacts policy_facts(const PluginLibrary &library);
// Whether a policy with these parameters reports that it never evicts, for the same model. false if
// it refuses the model.
bool never_evicts(const PluginLibrary &library, const ParamValues &params);

} // namespace keel::cli
