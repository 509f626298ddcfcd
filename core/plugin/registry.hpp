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

// Returns the folders that are searched for a plugin by name, in this order:
// - the folders of KEEL_PLUGIN_PATH (a list with ':' between the folders)
// - keel/plugins in the folder of libkeel, for programs that use Keel as a library
// - ../lib/keel/plugins, relative to the folder of the executable
// - the folder to which this build installs
// The working directory is never searched. Throws Error(usage) if KEEL_PLUGIN_PATH has a relative
// path.
std::vector<std::filesystem::path> default_plugin_folders();

// Returns the absolute path of a plugin's file, without loading the file. If `name_or_path` has a
// '/' or ".so", it is a path, which the caller must have made absolute. (A path in a YAML file is
// relative to this file.) Otherwise `name_or_path` is a name such as "cpu". Then the function
// returns the first file NAME.so in the folders. Throws Error(plugin) that names the folders and
// similar names.
std::filesystem::path find_plugin(const std::string &name_or_path, const SourceLocation &at,
                                  const std::vector<std::filesystem::path> &folders);

// Returns true if the value of a config's `plugin:` key is a path and not a name.
bool is_plugin_path(std::string_view name_or_path);

// A plugin file in one of the folders.
struct PluginFile {
    std::string name;           // the name that a config uses
    std::filesystem::path path; // an absolute path
    // true: an earlier folder has a file of the same name, and Keel uses that file
    bool shadowed = false;
};

// The plugins that this process has loaded. Each file is loaded once, even if several names lead to
// the same file. Thread-safe.
class PluginRegistry {
  public:
    explicit PluginRegistry(std::vector<std::filesystem::path> folders)
        : folders_(std::move(folders)) {}

    // Returns the registry of the process, with the default folders. The registry is never
    // destroyed, because its plugins stay mapped.
    static PluginRegistry &process();

    // Finds and loads a plugin. The reference is valid while the registry lives. Throws
    // Error(plugin) as find_plugin(), PluginLibrary and require_kind() do. Also throws if a plugin
    // that was found by name has another name in its descriptor.
    const PluginLibrary &get(const std::string &name_or_path, keel_plugin_kind kind,
                             const SourceLocation &at);
    // Finds and loads a plugin of any kind, for `keel plugins show`.
    const PluginLibrary &get(const std::string &name_or_path, const SourceLocation &at);

    // Returns the .so files in the folders, sorted by name. Does not load them. For `keel plugins
    // list`.
    std::vector<PluginFile> list() const;

    const std::vector<std::filesystem::path> &folders() const noexcept { return folders_; }

  private:
    std::vector<std::filesystem::path> folders_;
    std::mutex mutex_;
    std::map<std::filesystem::path, std::unique_ptr<PluginLibrary>> loaded_; // key: canonical path
};

} // namespace keel
