/* The plugin needs a newer host than this one. */
#include "good.h"

static const keel_policy table = {.h = KEEL_HEADER(keel_policy), GOOD_SLOTS};
static const keel_plugin plugin = {.h = KEEL_HEADER(keel_plugin),
                                   .min_host_abi = KEEL_ABI_VERSION + 41,
                                   .kind = KEEL_PLUGIN_POLICY,
                                   .id = "future_host",
                                   .version = "1.0.0",
                                   .vtable = &table};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return &plugin;
}
