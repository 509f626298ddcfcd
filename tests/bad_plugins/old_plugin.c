/* As an older header would have made it: descriptor and table end right after their required parts,
 * and what lies behind them in memory is not theirs. Works; what is missing is NULL. */
#include "good.h"

static const keel_policy table = {.h = {KEEL_PREFIX(keel_policy, decide), KEEL_ABI_VERSION},
                                  .create = good_create,
                                  .destroy = good_destroy,
                                  .decide = good_decide,
                                  /* not theirs any more: */
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
