/* A policy without faults. The others are compared with it. It has parameters that tests can
 * set. */
#include "good.h"

static const keel_param_spec window = KEEL_INT_PARAM("window", "32", 1, 4096, "slots that stay");
static const char *const orders[] = {"newest", "oldest", NULL};
static const keel_param_spec order =
    KEEL_CHOICE_PARAM("order", "newest", orders, "which slots stay");
static const keel_param_spec *const params[] = {&window, &order};
static const keel_policy table = {.h = KEEL_HEADER(keel_policy), GOOD_SLOTS};

static const void *extension(const char *id) {
    return keel_same(id, "keel.test/1") ? &table : NULL;
}

static const keel_plugin plugin = {.h = KEEL_HEADER(keel_plugin),
                                   GOOD_TEXTS("good_policy"),
                                   .n_params = 2,
                                   .params = params,
                                   .vtable = &table,
                                   .get_extension = extension};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return &plugin;
}
