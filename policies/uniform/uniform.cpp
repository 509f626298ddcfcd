// The budget allocator that gives every head of every layer the same.
#include <keel/sdk.hpp>

namespace {

keel_status create(const keel_host *, const keel_geometry *, const keel_param *const *, uint32_t,
                   keel_allocator_needs *needs, keel_allocator_state **out) {
    keel_allocator_needs mine = {KEEL_HEADER(keel_allocator_needs)};
    keel_emit(needs, &mine, sizeof mine);
    *out = nullptr; // no state
    return KEEL_OK;
}

void destroy(keel_allocator_state *) {}

keel_status allocate(keel_allocator_state *, const keel_allocator_input *input, int32_t *budgets) {
    const int64_t rows = static_cast<int64_t>(input->layers) * input->kv_heads;
    for (int64_t i = 0; i < rows; ++i)
        budgets[i] = static_cast<int32_t>(input->budget);
    return KEEL_OK;
}

const keel_allocator &table() {
    static const keel_allocator instance = [] {
        keel_allocator t = {KEEL_HEADER(keel_allocator)};
        t.create = keel::sdk::slot<create>;
        t.destroy = keel::sdk::slot<destroy>;
        t.allocate = keel::sdk::slot<allocate>;
        return t;
    }();
    return instance;
}

const keel_plugin &plugin() {
    static const keel_plugin instance = [] {
        keel_plugin p = {KEEL_HEADER(keel_plugin)};
        p.min_host_abi = KEEL_ABI_VERSION;
        p.kind = KEEL_PLUGIN_ALLOCATOR;
        p.id = "uniform";
        p.version = "0.1.0";
        p.vendor = "Keel";
        p.license = "MIT";
        p.doc = "Gives every head of every layer the same budget.";
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
