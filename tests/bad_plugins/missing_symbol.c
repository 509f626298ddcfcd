/* The plugin calls a function that no library defines. Loading with RTLD_NOW must find this, not
 * the first token. */
#include "good.h"

int a_function_that_nobody_defines(void);

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version;
    return a_function_that_nobody_defines() ? (const keel_plugin *)"" : NULL;
}
