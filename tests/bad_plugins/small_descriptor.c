/* The descriptor ends before the member `vtable`. */
#include "good.h"

static const keel_policy table = {.h = KEEL_HEADER(keel_policy), GOOD_SLOTS};
static const keel_plugin plugin = {.h = {KEEL_PREFIX(keel_plugin, license), KEEL_ABI_VERSION},
                                   GOOD_TEXTS("small_descriptor"),
                                   .vtable = &table};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return &plugin;
}
