/* The major version in the descriptor is not that of the entry symbol. */
#include "good.h"

static const keel_policy table = {.h = KEEL_HEADER(keel_policy), GOOD_SLOTS};
static const keel_plugin plugin = {.h = {(uint32_t)sizeof(keel_plugin), 7u << 16 | 3u},
                                   GOOD_TEXTS("wrong_major"),
                                   .vtable = &table};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return &plugin;
}
