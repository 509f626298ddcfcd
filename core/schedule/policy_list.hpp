#pragma once

#include <string>
#include <vector>

namespace keel {

// A key of PolicyChoice, for lists.
struct PolicyKeyFacts {
    std::string name;          // "budget.tokens", "params.window"
    std::string default_value; // as YAML; empty: there is none
    std::string expected;      // the allowed values
    std::string doc;
};

// A policy that requests can choose.
struct ListedPolicy {
    std::string name, doc;
    std::vector<PolicyKeyFacts> params;
};

// The installed policies, sorted by name. Loads all plugins; skips plugins that cannot be loaded.
std::vector<ListedPolicy> list_policies();
// The keys of PolicyChoice that do not depend on the policy.
std::vector<PolicyKeyFacts> list_policy_keys();

} // namespace keel
