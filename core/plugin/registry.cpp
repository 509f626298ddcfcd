#include "plugin/registry.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <set>
#include <system_error>

namespace keel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".so";

void add_once(std::vector<fs::path> &folders, const fs::path &folder) {
    const fs::path path = absolute_path(folder);
    if (std::find(folders.begin(), folders.end(), path) == folders.end()) folders.push_back(path);
}

void add_environment(std::vector<fs::path> &folders) {
    const char *value = std::getenv("KEEL_PLUGIN_PATH");
    std::string_view rest = value == nullptr ? "" : value;
    while (!rest.empty()) {
        const size_t end = std::min(rest.find(':'), rest.size());
        const fs::path folder = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        // In a list such as "a::b", other programs read the empty entry as the working directory.
        // Keel ignores the empty entry.
        if (folder.empty()) continue;
        if (!folder.is_absolute()) {
            throw_error(ErrorKind::usage,
                        "KEEL_PLUGIN_PATH: '{}' is relative; write absolute folders with ':' "
                        "between them, because Keel never loads code from the working directory",
                        printable(folder.string()));
        }
        add_once(folders, folder);
    }
}

// Returns the plugin files of a folder, by name. Empty if the folder does not exist or cannot be
// read.
std::vector<PluginFile> files_in(const fs::path &folder) {
    std::vector<PluginFile> files;
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
        std::error_code ignored;
        if (it->path().extension() == suffix && it->is_regular_file(ignored))
            files.push_back({it->path().stem().string(), it->path(), false});
    }
    std::sort(files.begin(), files.end(),
              [](const auto &a, const auto &b) { return a.name < b.name; });
    return files;
}

[[noreturn]] void throw_not_found(const std::string &name, const SourceLocation &at,
                                  const std::vector<fs::path> &folders) {
    std::set<std::string> known;
    for (const fs::path &folder : folders)
        for (const PluginFile &file : files_in(folder)) known.insert(file.name);
    const std::vector<std::string> names(known.begin(), known.end());
    std::string looked;
    for (const fs::path &folder : folders) looked += (looked.empty() ? "" : ", ") + folder.string();
    std::string cure = did_you_mean(name, names);
    if (cure.empty())
        cure = "; 'keel plugins list' shows all names; to use your own plugin, add its folder to "
               "KEEL_PLUGIN_PATH, or give the path of its library (with a '/')";
    throw_at(at, ErrorKind::plugin, "no plugin '{}': no {}{} in {}{}", printable(name),
             printable(name), suffix, looked.empty() ? "any folder (none is set)" : looked, cure);
}

// Returns the folder of libkeel, if this code is part of libkeel. Empty if this code is part of a
// program. Only an absolute path is accepted, so the result is never the working directory.
fs::path library_folder() {
    static const char here = 0;
    Dl_info info{};
    if (::dladdr(&here, &info) == 0 || info.dli_fname == nullptr || info.dli_fname[0] != '/')
        return {};
    std::error_code error;
    const fs::path path = fs::canonical(info.dli_fname, error);
    return error || path == executable_path() ? fs::path() : path.parent_path();
}

} // namespace

std::vector<fs::path> default_plugin_folders() {
    std::vector<fs::path> folders;
    add_environment(folders);
    if (const fs::path library = library_folder(); !library.empty())
        add_once(folders, library / "keel/plugins");
    const fs::path beside = executable_path().parent_path() / "..";
    add_once(folders, beside / "lib/keel/plugins");
    // KEEL_LIBDIR is for example lib64 or lib/x86_64-linux-gnu
    add_once(folders, beside / KEEL_LIBDIR / "keel/plugins");
    add_once(folders, fs::path(KEEL_FULL_LIBDIR) / "keel/plugins");
    return folders;
}

bool is_plugin_path(std::string_view name_or_path) {
    return name_or_path.find('/') != std::string_view::npos || name_or_path.ends_with(suffix);
}

fs::path find_plugin(const std::string &name_or_path, const SourceLocation &at,
                     const std::vector<fs::path> &folders) {
    if (is_plugin_path(name_or_path)) {
        const fs::path path = name_or_path;
        if (!path.is_absolute()) {
            throw_at(at, ErrorKind::plugin,
                     "plugin '{}': the path is relative, but the path of a plugin must be "
                     "absolute; write an absolute path, or the plugin's name",
                     printable(name_or_path));
        }
        return path.lexically_normal();
    }
    if (!name_or_path.empty()) {
        for (const fs::path &folder : folders) {
            std::error_code ignored;
            const fs::path path = folder / (name_or_path + std::string(suffix));
            if (fs::exists(path, ignored)) return path;
        }
    }
    throw_not_found(name_or_path, at, folders);
}

PluginRegistry &PluginRegistry::process() {
    static auto *const registry = new PluginRegistry(default_plugin_folders());
    return *registry;
}

const PluginLibrary &PluginRegistry::get(const std::string &name_or_path,
                                         const SourceLocation &at) {
    const fs::path path = find_plugin(name_or_path, at, folders_);
    std::error_code error;
    fs::path key = fs::canonical(path, error);
    if (error) key = path; // PluginLibrary reports the error
    const std::lock_guard lock(mutex_);
    auto found = loaded_.find(key);
    if (found == loaded_.end())
        found = loaded_.emplace(key, std::make_unique<PluginLibrary>(path, at)).first;
    const PluginLibrary &plugin = *found->second;
    if (!is_plugin_path(name_or_path) && plugin.id() != name_or_path) {
        throw_at(at, ErrorKind::plugin,
                 "plugin {}: the id in the plugin is '{}'; rename the file to {}{}",
                 printable(path.string(), 400), plugin.id(), plugin.id(), suffix);
    }
    return plugin;
}

const PluginLibrary &PluginRegistry::get(const std::string &name_or_path, keel_plugin_kind kind,
                                         const SourceLocation &at) {
    const PluginLibrary &plugin = get(name_or_path, at);
    plugin.require_kind(kind, at);
    return plugin;
}

std::vector<PluginFile> PluginRegistry::list() const {
    std::vector<PluginFile> all;
    std::set<std::string> seen;
    for (const fs::path &folder : folders_) {
        for (PluginFile &file : files_in(folder)) {
            file.shadowed = !seen.insert(file.name).second;
            all.push_back(std::move(file));
        }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto &a, const auto &b) { return a.name < b.name; });
    return all;
}

} // namespace keel
