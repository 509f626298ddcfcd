/* The descriptor has no function table. */
#include "good.h"

static const keel_plugin plugin = {.h = KEEL_HEADER(keel_plugin), GOOD_TEXTS("null_table")};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return &plugin;
}
