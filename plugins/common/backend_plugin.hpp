// Code that all backends in plugins/ share: the declarations of the entry points that are not ops,
// and the plugin descriptor. Each backend expands the macros below in its own namespace.
#pragma once

#include <keel/backend.h>

namespace keel_common {

// The function type of a member of keel_backend (the table of function pointers). It is the
// declared type plus noexcept, because no exception may leave the plugin.
template <class Slot> struct EntryPoint;
template <class Result, class... Args> struct EntryPoint<Result(KEEL_CALL *)(Args...)> {
    using Type = Result KEEL_CALL(Args...) noexcept;
};

// Expands X(slot) for each member of keel_backend that every backend in plugins/ defines, except
// for the ops. The list is grouped by the file that defines the functions.
#define KEEL_FOR_EACH_ENTRY_POINT(X)                                                               \
    /* device.cpp */                                                                               \
    X(device_count)                                                                                \
    X(device_info)                                                                                 \
    /* context.cpp */                                                                              \
    X(ctx_create)                                                                                  \
    X(ctx_destroy)                                                                                 \
    X(ctx_info)                                                                                    \
    X(mem_info)                                                                                    \
    X(flush)                                                                                       \
    X(wait)                                                                                        \
    X(poll)                                                                                        \
    /* buffer.cpp */                                                                               \
    X(buffer_create)                                                                               \
    X(buffer_destroy)                                                                              \
    X(buffer_write)                                                                                \
    X(buffer_read)                                                                                 \
    X(buffer_map)                                                                                  \
    /* weights.cpp */                                                                              \
    X(weight_prepare)                                                                              \
    X(weight_destroy)                                                                              \
    X(weight_info)

// Declares the function for the keel_backend member `slot` in the current namespace.
#define KEEL_DECLARE_ENTRY_POINT(slot)                                                             \
    keel_common::EntryPoint<decltype(keel_backend::slot)>::Type slot;

// Returns the descriptor of a backend plugin. `table` and `params` must be static constants.
template <uint32_t n>
constexpr keel_plugin backend_plugin(const char *id, const char *doc,
                                     const keel_param_spec *const (&params)[n],
                                     const keel_backend &table) {
    keel_plugin p{};
    p.h = KEEL_HEADER(keel_plugin);
    p.min_host_abi = KEEL_ABI_VERSION;
    p.kind = KEEL_PLUGIN_BACKEND;
    p.id = id;
    p.version = "0.1.0";
    p.vendor = "Keel";
    p.license = "MIT";
    p.doc = doc;
    p.build_info = __VERSION__;
    p.sanitizer = KEEL_SANITIZER_HERE;
    p.n_params = n;
    p.params = params;
    p.vtable = &table;
    return p;
}

} // namespace keel_common

// Defines the only symbol that a plugin exports. `plugin` is the plugin's descriptor.
#define KEEL_DEFINE_PLUGIN_QUERY(plugin)                                                           \
    extern "C" KEEL_EXPORT const keel_plugin *KEEL_CALL keel_plugin_query_v0(                      \
        uint32_t host_abi_version) {                                                               \
        return host_abi_version >> 16 == KEEL_ABI_MAJOR ? &(plugin) : nullptr;                     \
    }
