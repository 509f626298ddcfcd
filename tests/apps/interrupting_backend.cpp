// The reference backend with one change: while its first weight is prepared, the user presses
// Ctrl-C. The backend then stops as it should, if its host reports the interruption.

#include "reference/reference.hpp"

#include <keel/plugin.h>

#include <csignal>

namespace {

const keel_host *its_host = nullptr; // the host of the only context that a test makes

keel_status KEEL_CALL ctx_create(const keel_host *host, const keel_ctx_desc *desc, keel_ctx **out) {
    its_host = host;
    return keel::reference_backend()->ctx_create(host, desc, out);
}

keel_status KEEL_CALL weight_prepare(keel_ctx *, const keel_weight_desc *, keel_weight **) {
    (void)std::raise(SIGINT);
    if (its_host->cancelled(its_host) != 0) return KEEL_E_CANCELLED;
    its_host->set_error(its_host, KEEL_E_INTERNAL, "the host knows nothing of a Ctrl-C");
    return KEEL_E_INTERNAL;
}

} // namespace

extern "C" KEEL_EXPORT const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t) {
    static const keel_backend table = [] {
        keel_backend t = *keel::reference_backend();
        t.ctx_create = ctx_create;
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
