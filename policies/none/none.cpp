// The full cache: nothing is ever evicted. The reference that every other policy is compared with.
#include <keel/sdk.hpp>

namespace {

keel_status create(const keel_host *, const keel_geometry *, const keel_param *const *, uint32_t, uint64_t,
                   keel_policy_needs *needs, keel_policy_state **out) {
    keel_policy_needs mine = {KEEL_HEADER(keel_policy_needs)};
    mine.granularity = KEEL_KEEP_TOKEN;
    mine.output = KEEL_OUTPUT_KEEP;
    mine.flags = KEEL_POLICY_KEEPS_ALL;
    keel_emit(needs, &mine, sizeof mine);
    *out = nullptr; // no state
    return KEEL_OK;
}

void destroy(keel_policy_state *) {}

// The core never asks a policy that keeps all; a host that does gets all slots.
keel_status decide(keel_policy_state *, const keel_policy_input *input, keel_policy_decision *decision) {
    for (uint32_t h = 0; h < input->kv_heads; ++h) {
        int32_t *row = decision->keep + static_cast<int64_t>(h) * input->stride;
        for (int32_t slot = 0; slot < input->lengths[h]; ++slot)
            row[slot] = slot;
        decision->keep_count[h] = input->lengths[h];
    }
    return KEEL_OK;
}

keel_status reset(keel_policy_state *) {
    return KEEL_OK;
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
        p.id = "none";
        p.version = "0.1.0";
        p.vendor = "Keel";
        p.license = "MIT";
        p.doc = "Keeps every token: the full cache.";
        p.build_info = __VERSION__;
        p.sanitizer = KEEL_SANITIZER_HERE;
        p.vtable = &table();
        return p;
    }();
    return instance;
}

} // namespace

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t) {
    return &plugin();
}
