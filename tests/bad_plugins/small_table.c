/* The policy table ends before the member `decide`. */
#include "good.h"

static const keel_policy table = {.h = {KEEL_PREFIX(keel_policy, destroy), KEEL_ABI_VERSION},
                                  GOOD_SLOTS};
static const keel_plugin plugin = {
    .h = KEEL_HEADER(keel_plugin), GOOD_TEXTS("small_table"), .vtable = &table};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return &plugin;
}
