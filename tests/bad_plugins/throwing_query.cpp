// The plugin's entry function throws. sdk.hpp converts the exception to NULL, which means that the
// plugin refuses the host.
#include <keel/sdk.hpp>

#include <stdexcept>

static const keel_plugin *query(uint32_t host_abi_version) {
    if (host_abi_version == KEEL_ABI_VERSION) throw std::runtime_error("not today");
    return nullptr;
}

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    return keel::sdk::slot<query>(host_abi_version);
}
