// Knorm (arXiv 2406.11430) keeps the slots whose keys have a small norm.
#include <keel/sdk_policy.hpp>

#include <functional>

namespace {

using namespace keel::sdk;

class KeyNorm {
  public:
    static constexpr PluginInfo info = {
        "knorm", "0.1.0", "Keel", "MIT",
        "Keeps the keys with the smallest L2 norm; needs no attention."};

    KeyNorm(const Setup &, keel_policy_needs &needs) {
        needs.needs = KEEL_NEED_KEY_NORMS;
        needs.flags = KEEL_POLICY_BLOCKWISE; // allowed, because the norm of a key never changes
    }

    void decide(const PolicyInput &in, PolicyDecision &out) {
        for (uint32_t h = 0; h < in.kv_heads(); ++h)
            std::transform(in.key_norms(h), in.key_norms(h) + in.length(h), out.scores(h),
                           std::negate<>());
    }
};

} // namespace

KEEL_POLICY_PLUGIN(KeyNorm)
