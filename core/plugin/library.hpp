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

// Returns "backend", "policy" or "budget allocator".
std::string kind_name(keel_plugin_kind kind);
// Returns a version as text, for example "0.1". `version` is major << 16 | minor.
std::string abi_text(uint32_t version);

// A loaded plugin. The core has checked and copied everything that it reads or calls later. The
// library stays mapped until the end of the process, because threads and exit handlers of a driver
// can still run its code.
class PluginLibrary {
  public:
    // Loads the library at an absolute path. `at` is the place in the config that names the
    // library, for errors. If the library is refused, closes it and throws Error(plugin) with
    // plugin, place, reason and remedy.
    PluginLibrary(const std::filesystem::path &path, const SourceLocation &at);
    PluginLibrary(const PluginLibrary &) = delete;
    PluginLibrary &operator=(const PluginLibrary &) = delete;

    const std::filesystem::path &path() const noexcept { return path_; }
    const std::string &id() const noexcept { return id_; }
    keel_plugin_kind kind() const noexcept { return descriptor_.kind; }
    // Returns kind and id: "policy snapkv".
    std::string name() const { return kind_name(kind()) + ' ' + id_; }
    const std::string &version() const noexcept { return version_; }
    const std::string &vendor() const noexcept { return vendor_; }
    const std::string &license() const noexcept { return license_; }
    const std::string &doc() const noexcept { return doc_; }
    const std::string &build_info() const noexcept { return build_info_; }
    uint32_t abi_version() const noexcept { return descriptor_.h.abi_version; }
    uint64_t caps() const noexcept { return descriptor_.caps; }
    const ParamTable &params() const noexcept { return params_; }
    // Returns the plugin's extension `id`, or NULL if the plugin does not have it.
    const void *extension(const char *id) const;

    // The core's copy of the table. Required functions are set. Functions that the plugin does not
    // have are NULL. Throws Error(internal) if the plugin is of another kind.
    const keel_backend &backend() const { return table<keel_backend>(); }
    const keel_policy &policy() const { return table<keel_policy>(); }
    const keel_allocator &allocator() const { return table<keel_allocator>(); }

    // Throws Error(plugin) "...: sliding_window is a policy, but this key needs a backend; ..." if
    // the plugin is of another kind.
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

// Copies a plugin's table and checks it. Errors begin with `who`. PluginLibrary uses these
// functions. Tests and wrappers also use them, for backends that do not come from a library.
keel_backend adopt_backend(const void *vtable, const std::string &who);
keel_policy adopt_policy(const void *vtable, const std::string &who);
keel_allocator adopt_allocator(const void *vtable, const std::string &who);

} // namespace keel
