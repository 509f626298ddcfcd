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
    std::vector<std::string> needs;  // of the core: "key norms", ...
    std::vector<std::string> traits; // "acts at the end of the prompt only", ...
    uint32_t window = 0, own_budget = 0;
};
// What a policy is like with its default parameters; asked on a model of middling size. Throws
// Error.
PolicyFacts policy_facts(const PluginLibrary &library);
// Whether a policy with these parameters says that it never evicts, asked as above; false if it
// refuses such a model.
bool never_evicts(const PluginLibrary &library, const ParamValues &params);

} // namespace keel::cli
