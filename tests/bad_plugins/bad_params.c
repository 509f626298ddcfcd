/* The default of a parameter is outside its own range. */
#include "good.h"

static const keel_param_spec window = KEEL_INT_PARAM("window", "0", 1, 4096, "slots that stay");
static const keel_param_spec *const params[] = {&window};
static const keel_policy table = {.h = KEEL_HEADER(keel_policy), GOOD_SLOTS};
static const keel_plugin plugin = {.h = KEEL_HEADER(keel_plugin),
                                   GOOD_TEXTS("bad_params"),
                                   .n_params = 1,
                                   .params = params,
                                   .vtable = &table};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return &plugin;
}
