#pragma once

#include "plugin/library.hpp"

#include <string>
#include <vector>

namespace keel::cli {

struct DeviceFacts {
    std::string name, vendor, driver, type;
    uint64_t total_bytes = 0; // 0: unknown
};
// Returns the devices that a backend finds now. Throws Error(plugin) with the backend's message.
std::vector<DeviceFacts> backend_devices(const PluginLibrary &library);

struct PolicyFacts {
    // How a policy chooses slots, and the form of its output.
    std::string granularity, output;
    std::vector<std::string> needs;  // inputs from the core, for example "key norms"
    std::vector<std::string> traits; // for example "acts only at the end of the prompt"
    uint32_t window = 0, own_budget = 0;
};
// Returns the properties of a policy with its default parameters, for a model of medium size.
// Throws an Error if the policy reports an error.
PolicyFacts policy_facts(const PluginLibrary &library);
// Returns true if the policy reports, for these parameters and a model of medium size, that it
// never evicts. Returns false if the policy refuses the model.
bool never_evicts(const PluginLibrary &library, const ParamValues &params);

} // namespace keel::cli
