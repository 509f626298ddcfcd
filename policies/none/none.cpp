// Keeps the full cache and evicts nothing. Other policies are compared with this policy.
#include <keel/sdk_policy.hpp>

namespace {

using namespace keel::sdk;

struct None : KeepsAll {
    using KeepsAll::KeepsAll;
    static constexpr PluginInfo info = {"none", "0.1.0", "Keel", "MIT",
                                        "Keeps every token: the full cache."};
};

} // namespace

KEEL_POLICY_PLUGIN(None)
