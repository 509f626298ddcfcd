// The protected tokens and the newest others: attention sinks and a sliding window (StreamingLLM).
#include <keel/sdk.hpp>

struct keel_policy_state {
    const keel_host *host;
    int64_t window; // newest slots to keep beside the protected ones; 0: as many as the budget leaves
};

const keel_host *host_of(const keel_policy_state *state) {
    return state->host;
}

namespace {

const keel_param_spec param_window =
    KEEL_INT_PARAM("window", "0", 0, 16777216,
                   "newest tokens to keep; 0: as many as policy.budget leaves beside the protected ones. "
                   "With a window no budget is needed.");
const keel_param_spec *const params[] = {&param_window};

keel_status create(const keel_host *host, const keel_geometry *, const keel_param *const *values, uint32_t n,
                   uint64_t, keel_policy_needs *needs, keel_policy_state **out) {
    const int64_t window = keel::sdk::Params(values, n).integer("window");
    auto *state = static_cast<keel_policy_state *>(
        host->alloc(host, sizeof(keel_policy_state), alignof(keel_policy_state)));
    if (state == nullptr) return KEEL_E_OUT_OF_MEMORY;
    *state = {host, window};

    keel_policy_needs mine = {KEEL_HEADER(keel_policy_needs)};
    mine.granularity = KEEL_KEEP_TOKEN;
    mine.output = KEEL_OUTPUT_KEEP;
    mine.flags = KEEL_POLICY_BLOCKWISE; // looks at nothing but places, so it can act at any time
    mine.own_budget = static_cast<uint32_t>(window);
    keel_emit(needs, &mine, sizeof mine);
    *out = state;
    return KEEL_OK;
}

void destroy(keel_policy_state *state) {
    if (state != nullptr) state->host->free(state->host, state);
}

// One keep-set for all layers and heads: row 0.
keel_status decide(keel_policy_state *state, const keel_policy_input *input, keel_policy_decision *decision) {
    const int32_t length = input->lengths[0];
    int64_t room = input->budgets[0]; // for slots that are not protected
    for (int32_t slot = 0; slot < length; ++slot)
        room -= input->protected_mask[slot] != 0 ? 1 : 0;
    int64_t oldest = state->window > 0 && state->window < length ? length - state->window : 0;
    // Where the budget ends, seen from the newest slot.
    int64_t slot = length;
    while (slot > oldest && (room > 0 || input->protected_mask[slot - 1] != 0)) {
        --slot;
        room -= input->protected_mask[slot] != 0 ? 0 : 1;
    }
    oldest = slot;
    int32_t kept = 0;
    for (int32_t s = 0; s < length; ++s)
        if (s >= oldest || input->protected_mask[s] != 0) decision->keep[kept++] = s;
    decision->keep_count[0] = kept;
    return KEEL_OK;
}

keel_status reset(keel_policy_state *) {
    return KEEL_OK; // nothing is remembered
}

const keel_policy &table() {
    static const keel_policy instance = [] {
        keel_policy t = {KEEL_HEADER(keel_policy)};
        t.create = keel::sdk::slot<create>;
        t.destroy = keel::sdk::slot<destroy>;
        t.decide = keel::sdk::slot<decide>;
        t.reset = keel::sdk::slot<reset>;
        return t;
    }();
    return instance;
}

const keel_plugin &plugin() {
    static const keel_plugin instance = [] {
        keel_plugin p = {KEEL_HEADER(keel_plugin)};
        p.min_host_abi = KEEL_ABI_VERSION;
        p.kind = KEEL_PLUGIN_POLICY;
        p.id = "sliding_window";
        p.version = "0.1.0";
        p.vendor = "Keel";
        p.license = "MIT";
        p.doc = "Keeps the protected tokens (attention sinks) and a window of the newest ones.";
        p.build_info = __VERSION__;
        p.sanitizer = KEEL_SANITIZER_HERE;
        p.n_params = 1;
        p.params = params;
        p.vtable = &table();
        return p;
    }();
    return instance;
}

} // namespace

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t) {
    return &plugin();
}
