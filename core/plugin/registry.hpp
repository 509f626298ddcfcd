#pragma once

#include "base/location.hpp"
#include "plugin/library.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Where plugins are looked for by name, in this order: the folders of KEEL_PLUGIN_PATH (a list with
// ':' between), keel/plugins beside libkeel (in a program that has Keel as a library),
// ../lib/keel/plugins beside the executable, the folder that this build installs to. Never the
// working directory. Throws Error(usage) if KEEL_PLUGIN_PATH holds a relative path.
std::vector<std::filesystem::path> default_plugin_folders();

// The file of a plugin, absolute. `name_or_path` is a name ("cpu") that is looked up as NAME.so in
// the folders, the first hit wins; or, with a '/' or ".so" in it, a path, which the caller has made
// absolute (a YAML file's paths are relative to that file). Nothing is loaded. Throws Error(plugin)
// with the folders searched and near names.
std::filesystem::path find_plugin(const std::string &name_or_path, const SourceLocation &at,
                                  const std::vector<std::filesystem::path> &folders);

// True if a config's `plugin:` value is a path and not a name.
bool is_plugin_path(std::string_view name_or_path);

// A plugin file in one of the folders.
struct PluginFile {
    std::string name;           // as a config would name it
    std::filesystem::path path; // absolute
    bool shadowed = false;      // a file of the same name in an earlier folder is taken instead
};

// The plugins that this process has loaded. Each file is loaded once, whatever name led to it.
// Thread-safe.
class PluginRegistry {
  public:
    explicit PluginRegistry(std::vector<std::filesystem::path> folders)
        : folders_(std::move(folders)) {}

    // The process's own, with the default folders; never destroyed, as its plugins stay mapped.
    static PluginRegistry &process();

    // Finds and loads. The reference is valid as long as the registry. Throws Error(plugin) as
    // find_plugin(), PluginLibrary and require_kind() do, and if a plugin found by name calls
    // itself by another.
    const PluginLibrary &get(const std::string &name_or_path, keel_plugin_kind kind,
                             const SourceLocation &at);
    // Of any kind: for `keel plugins show`.
    const PluginLibrary &get(const std::string &name_or_path, const SourceLocation &at);

    // The .so files in the folders, sorted by name; nothing is loaded. For `keel plugins list`.
    std::vector<PluginFile> list() const;

    const std::vector<std::filesystem::path> &folders() const noexcept { return folders_; }

  private:
    std::vector<std::filesystem::path> folders_;
    std::mutex mutex_;
    std::map<std::filesystem::path, std::unique_ptr<PluginLibrary>> loaded_; // by canonical path
};

} // namespace keel
