#pragma once

#include "base/location.hpp"
#include "plugin/param_table.hpp"

#include <keel/allocator.h>
#include <keel/backend.h>
#include <keel/plugin.h>
#include <keel/policy.h>

#include <filesystem>
#include <memory>
#include <string>
#include <variant>

namespace keel {

// "backend", "policy", "budget allocator".
std::string kind_name(keel_plugin_kind kind);
// "0.1" of major << 16 | minor.
std::string abi_text(uint32_t version);

// A plugin that was loaded, checked and adopted: whatever it may read or call later was copied and
// is known to be there. The library stays mapped to the end of the process, on purpose: a driver's
// threads and exit handlers may outlive us.
class PluginLibrary {
  public:
    // Loads the library at an absolute path. `at` is the place in the config that names it, for
    // errors. Every refusal throws Error(plugin) with plugin, place, reason and cure, and closes
    // the library.
    PluginLibrary(const std::filesystem::path &path, const SourceLocation &at);
    PluginLibrary(const PluginLibrary &) = delete;
    PluginLibrary &operator=(const PluginLibrary &) = delete;

    const std::filesystem::path &path() const noexcept { return path_; }
    const std::string &id() const noexcept { return id_; }
    keel_plugin_kind kind() const noexcept { return descriptor_.kind; }
    std::string name() const { return kind_name(kind()) + ' ' + id_; } // "policy snapkv"
    const std::string &version() const noexcept { return version_; }
    const std::string &vendor() const noexcept { return vendor_; }
    const std::string &license() const noexcept { return license_; }
    const std::string &doc() const noexcept { return doc_; }
    const std::string &build_info() const noexcept { return build_info_; }
    uint32_t abi_version() const noexcept { return descriptor_.h.abi_version; }
    uint64_t caps() const noexcept { return descriptor_.caps; }
    const ParamTable &params() const noexcept { return params_; }
    // NULL if the plugin does not have it.
    const void *extension(const char *id) const;

    // The core's own copy of the table: required slots are set, what the plugin lacks is NULL.
    // Throws Error(internal) if the plugin is of another kind.
    const keel_backend &backend() const { return table<keel_backend>(); }
    const keel_policy &policy() const { return table<keel_policy>(); }
    const keel_allocator &allocator() const { return table<keel_allocator>(); }

    // Throws Error(plugin) "...: sliding_window is a policy, a backend is wanted here; ..." if the
    // kind is another one.
    void require_kind(keel_plugin_kind wanted, const SourceLocation &at) const;

  private:
    template <typename T> const T &table() const {
        if (const T *found = std::get_if<T>(&table_)) return *found;
        throw_wrong_table();
    }
    [[noreturn]] void throw_wrong_table() const;

    std::filesystem::path path_;
    keel_plugin descriptor_{};
    std::string id_, version_, vendor_, license_, doc_, build_info_;
    ParamTable params_;
    std::variant<std::monostate, keel_backend, keel_policy, keel_allocator> table_;
};

// Adopts a plugin's table by copy and checks it; `who` opens the errors. Part of PluginLibrary, and
// for backends that do not come from a library (tests, wrappers).
keel_backend adopt_backend(const void *vtable, const std::string &who);
keel_policy adopt_policy(const void *vtable, const std::string &who);
keel_allocator adopt_allocator(const void *vtable, const std::string &who);

} // namespace keel
