/* A plugin without other faults that is linked with -ffast-math. This sets flush-to-zero for the
 * thread that loads the library. */
#include "good.h"

static const keel_policy table = {.h = KEEL_HEADER(keel_policy), GOOD_SLOTS};
static const keel_plugin plugin = {
    .h = KEEL_HEADER(keel_plugin), GOOD_TEXTS("fast_math"), .vtable = &table};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return &plugin;
}
