/* The plugin exports the entry symbol of another major version. */
#include <stdint.h>

const void *keel_plugin_query_v1(uint32_t host_abi_version);
const void *keel_plugin_query_v1(uint32_t host_abi_version) {
    return host_abi_version == 0 ? "" : 0;
}
