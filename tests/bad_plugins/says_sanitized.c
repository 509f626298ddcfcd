/* The plugin says that it was built with a sanitizer, which this build does not have. */
#include "good.h"

static const keel_policy table = {.h = KEEL_HEADER(keel_policy), GOOD_SLOTS};
static const keel_plugin plugin = {.h = KEEL_HEADER(keel_plugin),
                                   .min_host_abi = KEEL_ABI_VERSION,
                                   .kind = KEEL_PLUGIN_POLICY,
                                   .id = "says_sanitized",
                                   .version = "1.0.0",
                                   .sanitizer = KEEL_SANITIZER_HERE == KEEL_SANITIZER_THREAD
                                                    ? KEEL_SANITIZER_ADDRESS
                                                    : KEEL_SANITIZER_THREAD,
                                   .vtable = &table};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return &plugin;
}
