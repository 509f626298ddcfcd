// The full cache: nothing is ever evicted. The reference that every other policy is compared with.
#include <keel/sdk_policy.hpp>

namespace {

using namespace keel::sdk;

class None {
  public:
    static constexpr PluginInfo info = {"none", "0.1.0", "Keel", "MIT", "Keeps every token: the full cache."};

    None(const Setup &, keel_policy_needs &needs) {
        needs.granularity = KEEL_KEEP_TOKEN;
        needs.output = KEEL_OUTPUT_KEEP;
        needs.flags = KEEL_POLICY_KEEPS_ALL;
    }

    // The core never asks a policy that keeps all; a host that does gets all slots.
    void decide(const PolicyInput &in, PolicyDecision &out) {
        int32_t *row = out.keep(0);
        std::iota(row, row + in.length(0), 0);
        out.kept(0, in.length(0));
    }
};

} // namespace

KEEL_POLICY_PLUGIN(None)
