/* The policy table ends in the middle of a pointer. */
#include "good.h"

static const keel_policy table = {.h = {(uint32_t)sizeof(keel_policy) - 4, KEEL_ABI_VERSION},
                                  GOOD_SLOTS};
static const keel_plugin plugin = {
    .h = KEEL_HEADER(keel_plugin), GOOD_TEXTS("half_slot"), .vtable = &table};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return &plugin;
}
