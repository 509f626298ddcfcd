/* The major version of the policy table is not that of the descriptor. */
#include "good.h"

static const keel_policy table = {.h = {(uint32_t)sizeof(keel_policy), 2u << 16}, GOOD_SLOTS};
static const keel_plugin plugin = {
    .h = KEEL_HEADER(keel_plugin), GOOD_TEXTS("table_major"), .vtable = &table};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return &plugin;
}
