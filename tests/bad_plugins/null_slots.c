/* Two required function pointers are NULL. */
#include "good.h"

static const keel_policy table = {
    .h = KEEL_HEADER(keel_policy), .destroy = good_destroy, .reset = good_reset};
static const keel_plugin plugin = {
    .h = KEEL_HEADER(keel_plugin), GOOD_TEXTS("null_slots"), .vtable = &table};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return &plugin;
}
