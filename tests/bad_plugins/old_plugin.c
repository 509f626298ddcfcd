/* A plugin that was built with an older header: the descriptor and the table end after their
 * required members. The memory after them does not belong to them. The plugin works, and the
 * host sees the missing members as NULL. */
#include "good.h"

static const keel_policy table = {.h = {KEEL_PREFIX(keel_policy, decide), KEEL_ABI_VERSION},
                                  .create = good_create,
                                  .destroy = good_destroy,
                                  .decide = good_decide,
                                  /* The following members are after the stated end of the table. */
                                  .reset =
                                      (keel_status(*)(keel_policy_state *))(uintptr_t)0xdeadbeefu,
                                  .fork = NULL};

static const keel_plugin plugin = {.h = {KEEL_PREFIX(keel_plugin, vtable), KEEL_ABI_VERSION},
                                   GOOD_TEXTS("old_plugin"),
                                   .vtable = &table,
                                   .get_extension =
                                       (const void *(*)(const char *))(uintptr_t)0xdeadbeefu};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return &plugin;
}
