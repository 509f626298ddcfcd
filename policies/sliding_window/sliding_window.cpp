// Keeps the protected tokens and the newest other tokens. This is a sliding window with attention
// sinks (StreamingLLM).
#include <keel/sdk_policy.hpp>

namespace {

using namespace keel::sdk;

class SlidingWindow {
  public:
    static constexpr PluginInfo info = {
        "sliding_window", "0.1.0", "Keel", "MIT",
        "Keeps the protected tokens (attention sinks) and a window of the newest ones."};
    static constexpr keel_param_spec params[] = {KEEL_INT_PARAM(
        "window", "0", 0, 16777216,
        "newest tokens to keep; 0: as many as policy.budget leaves beside the protected ones. "
        "With a window no budget is needed.")};

    SlidingWindow(const Setup &setup, keel_policy_needs &needs)
        : window_(setup.params.integer("window")) {
        needs.granularity = KEEL_KEEP_TOKEN;
        needs.output = KEEL_OUTPUT_KEEP;
        // The policy needs only positions, so it can evict at any time.
        needs.flags = KEEL_POLICY_BLOCKWISE;
        needs.own_budget = static_cast<uint32_t>(window_);
    }

    // Row 0 holds the slots to keep for all layers and heads.
    void decide(const PolicyInput &in, PolicyDecision &out) {
        const int32_t length = in.length(0);
        const int64_t oldest = window_ > 0 ? length - window_ : 0;
        // number of slots that can be kept in addition to the protected slots
        int64_t room = in.budget(0);
        for (int32_t slot = 0; slot < length; ++slot) room -= in.is_protected(0, slot);
        int32_t *const keep = out.keep(0), *end = keep;
        for (int32_t slot = length; slot-- > 0;) // from the newest to the oldest
            if (in.is_protected(0, slot) || (slot >= oldest && room-- > 0)) *end++ = slot;
        std::reverse(keep, end);
        out.kept(0, static_cast<int32_t>(end - keep));
    }

  private:
    // Number of newest slots to keep in addition to the protected slots. 0: as many slots as the
    // budget allows.
    int64_t window_;
};

} // namespace

KEEL_POLICY_PLUGIN(SlidingWindow)
