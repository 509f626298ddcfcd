// The reference backend, but while its first weight is prepared the user presses Ctrl-C, and it gives up as it should.

#include "reference/reference.hpp"

#include <keel/plugin.h>

#include <csignal>

namespace {

keel_status KEEL_CALL weight_prepare(keel_ctx *, const keel_weight_desc *, keel_weight **) {
    (void)std::raise(SIGINT);
    return KEEL_E_CANCELLED;
}

} // namespace

extern "C" KEEL_EXPORT const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t) {
    static const keel_backend table = [] {
        keel_backend t = *keel::reference_backend();
        t.weight_prepare = weight_prepare;
        return t;
    }();
    static const keel_plugin plugin = [] {
        keel_plugin p = *keel::reference_plugin();
        p.id = "interrupting_backend";
        p.doc = "The reference, interrupted while it prepares weights.";
        p.vtable = &table;
        return p;
    }();
    return &plugin;
}
