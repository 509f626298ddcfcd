// The full cache: nothing is ever evicted. The reference that every other policy is compared with.
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
