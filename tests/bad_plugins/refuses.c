/* The plugin refuses every host: the query returns NULL. */
#include "good.h"

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    static const keel_policy table = {.h = KEEL_HEADER(keel_policy), GOOD_SLOTS};
    static const keel_plugin plugin = {
        .h = KEEL_HEADER(keel_plugin), GOOD_TEXTS("refuses"), .vtable = &table};
    return host_abi_version == 0xffffffffu ? &plugin : NULL;
}
