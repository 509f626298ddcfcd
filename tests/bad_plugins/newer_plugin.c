/* A plugin that was built with a newer header: its structs are longer, and its minor version is
 * higher. It works, and the host ignores the new members. */
#include "good.h"

#define NEWER (KEEL_ABI_VERSION + 5)

static const struct {
    keel_policy known;
    uint64_t later[8];
} table = {{.h = {sizeof(keel_policy) + 64, NEWER}, GOOD_SLOTS},
           {~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull}};

static const struct {
    keel_param_spec known;
    uint64_t later[4];
} window = {{.h = {sizeof(keel_param_spec) + 32, NEWER},
             .key = "window",
             .doc = "slots that stay",
             .type = KEEL_PARAM_INT,
             .min = 1,
             .max = 8,
             .default_utf8 = "4"},
            {~0ull, ~0ull, ~0ull, ~0ull}};
static const keel_param_spec *const params[] = {&window.known};

static const struct {
    keel_plugin known;
    uint64_t later[8];
} plugin = {{.h = {sizeof(keel_plugin) + 64, NEWER},
             GOOD_TEXTS("newer_plugin"),
             .caps = ~0ull,
             .n_params = 1,
             .params = params,
             .vtable = &table},
            {~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull}};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return &plugin.known;
}
