#include "plugin/library.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "platform/elf_symbols.hpp"
#include "platform/fpu.hpp"
#include "platform/mapped_file.hpp"

#include <boost/dll/shared_library.hpp>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace keel {
namespace {

namespace fs = std::filesystem;
using SharedLibrary = boost::dll::shared_library;

constexpr size_t max_text = 4096;

constexpr keel_sanitizer own_sanitizer = KEEL_SANITIZER_HERE;

std::string sanitizer_name(keel_sanitizer sanitizer) {
    switch (sanitizer) {
    case KEEL_SANITIZER_NONE: return "no sanitizer";
    case KEEL_SANITIZER_ADDRESS: return "AddressSanitizer";
    case KEEL_SANITIZER_THREAD: return "ThreadSanitizer";
    default: return fmt::format("an unknown sanitizer ({})", sanitizer);
    }
}

// Returns the start of every error about a plugin: its place in the config and its file.
std::string who_text(const SourceLocation &at, const fs::path &path) {
    return fmt::format("{}: plugin {}", to_string(at), printable(path.string(), 400));
}

std::string copy_text(const char *text) {
    return text == nullptr ? std::string()
                           : printable(std::string_view(text, ::strnlen(text, max_text)), max_text);
}

void refuse_sanitizer(keel_sanitizer theirs, const std::string &who) {
    // Every host can run a plugin that was built without a sanitizer. A plugin with a sanitizer
    // needs a host with the same sanitizer.
    if (theirs == KEEL_SANITIZER_NONE || theirs == own_sanitizer) return;
    throw_error(ErrorKind::plugin,
                "{}: the plugin was built with {}, this Keel with {}; build both with the same "
                "KEEL_SANITIZE",
                who, sanitizer_name(theirs), sanitizer_name(own_sanitizer));
}

// These checks must come before the library is mapped. The runtime of a sanitizer ends the process
// if it is loaded after the program's start.
void check_file(const fs::path &path, const std::string &who) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status))
        throw_error(ErrorKind::plugin,
                    "{}: no such file; correct the path, or build or install the plugin", who);
    if (!fs::is_regular_file(status))
        throw_error(ErrorKind::plugin,
                    "{}: expected a regular file, found a folder or a device; name the .so file",
                    who);
    try {
        const MappedFile file(path);
        if (names_dynamic_symbol(file.bytes(), "__asan_init"))
            refuse_sanitizer(KEEL_SANITIZER_ADDRESS, who);
        if (names_dynamic_symbol(file.bytes(), "__tsan_init"))
            refuse_sanitizer(KEEL_SANITIZER_THREAD, who);
    } catch (const Error &failure) {
        if (failure.kind() == ErrorKind::plugin) throw;
        throw_error(ErrorKind::plugin, "{}: cannot be read ({}); check the file's permissions", who,
                    failure.what());
    }
}

// Extracts the loader's message from Boost's text, which is "... (dlerror system message: MESSAGE):
// CODE [...]".
std::string loader_words(std::string_view what) {
    constexpr std::string_view mark = "dlerror system message: ";
    if (const size_t at = what.find(mark); at != std::string_view::npos) {
        what.remove_prefix(at + mark.size());
        what = what.substr(0, what.rfind("):"));
    }
    return printable(what, 400);
}

std::string_view loader_cure(std::string_view words) {
    const auto has = [&](std::string_view text) {
        return words.find(text) != std::string_view::npos;
    };
    if (has("undefined symbol"))
        return "link the missing library into the plugin (keel_add_plugin() makes the linker check "
               "this)";
    if (has("cannot open shared object file"))
        return "install the library that is missing (ldd lists the plugin's libraries)";
    if (has("wrong ELF class") || has("cannot open shared object"))
        return "build the plugin for this processor";
    return "build the plugin again for this system";
}

SharedLibrary open_library(const fs::path &path, const std::string &who) {
    const uint32_t mode = fpu_mode();
    SharedLibrary library;
    try {
        library.load(path, boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
    } catch (const std::exception &failure) {
        set_fpu_mode(mode);
        const std::string words = loader_words(failure.what());
        throw_error(ErrorKind::plugin, "{}: cannot be loaded: {}; {}", who, words,
                    loader_cure(words));
    }
    if (fpu_mode() != mode) {
        set_fpu_mode(mode);
        log().warn(
            "{}: the plugin changed the floating-point mode when it was loaded, and Keel restored "
            "the mode. The plugin was linked with -ffast-math: pass this flag only to the compiler",
            who);
    }
    return library;
}

// Keeps a library mapped until the end of the process. The list of libraries is never destroyed.
// The list stays reachable, so leak checkers do not report it.
void keep_mapped(SharedLibrary library) {
    static std::mutex mutex;
    static auto *const libraries = new std::vector<SharedLibrary>;
    const std::lock_guard lock(mutex);
    libraries->push_back(std::move(library));
}

// Returns the major ABI version in the name of the plugin's entry symbol, if this version differs
// from Keel's. Returns nullopt if the library has no such symbol.
std::optional<uint32_t> other_major(const SharedLibrary &library) {
    for (uint32_t major = 0; major < 16; ++major) {
        if (major != KEEL_ABI_MAJOR && library.has("keel_plugin_query_v" + std::to_string(major)))
            return major;
    }
    return std::nullopt;
}

keel_plugin query(SharedLibrary &library, const std::string &who) {
    if (!library.has(KEEL_PLUGIN_QUERY_SYMBOL)) {
        if (const auto major = other_major(library)) {
            throw_error(ErrorKind::plugin,
                        "{}: the plugin was built for ABI major {}, this Keel has ABI {}; use a "
                        "build of the plugin for this Keel, or a {} Keel",
                        who, *major, abi_text(KEEL_ABI_VERSION),
                        *major > KEEL_ABI_MAJOR ? "newer" : "older");
        }
        throw_error(ErrorKind::plugin,
                    "{}: the library exports no {}, so it is not a Keel plugin, or the entry point "
                    "is hidden; build the plugin with keel_add_plugin()",
                    who, KEEL_PLUGIN_QUERY_SYMBOL);
    }
    const keel_plugin *theirs =
        library.get<const keel_plugin *(uint32_t)>(KEEL_PLUGIN_QUERY_SYMBOL)(KEEL_ABI_VERSION);
    if (theirs == nullptr) {
        throw_error(ErrorKind::plugin,
                    "{}: the plugin refuses to serve this Keel (ABI {}); update Keel, or use an "
                    "older build of the plugin",
                    who, abi_text(KEEL_ABI_VERSION));
    }
    keel_plugin mine;
    const uint32_t required = KEEL_PREFIX(keel_plugin, vtable);
    if (keel_adopt(&mine, sizeof mine, theirs, required) == KEEL_OK) return mine;
    if (theirs->h.abi_version >> 16 != KEEL_ABI_MAJOR) {
        throw_error(ErrorKind::plugin,
                    "{}: the descriptor has ABI {}, this Keel has ABI {}; use a build of the "
                    "plugin for this Keel",
                    who, abi_text(theirs->h.abi_version), abi_text(KEEL_ABI_VERSION));
    }
    throw_error(ErrorKind::plugin,
                "{}: the descriptor is too small: {} bytes, {} are required; this is a fault of "
                "the plugin: report it to its author",
                who, theirs->h.struct_size, required);
}

bool good_id(std::string_view id) {
    return !id.empty() && id.size() <= 64 && id[0] >= 'a' && id[0] <= 'z' &&
           std::all_of(id.begin(), id.end(), [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
           });
}

void check_descriptor(const keel_plugin &plugin, const std::string &id, const std::string &who) {
    if (plugin.h.struct_size % sizeof(void *) != 0) {
        throw_error(ErrorKind::plugin,
                    "{}: the size of the descriptor, {} bytes, is not a multiple of a pointer's "
                    "size; this is a fault of the plugin: report it to its author",
                    who, plugin.h.struct_size);
    }
    if (plugin.min_host_abi > KEEL_ABI_VERSION) {
        throw_error(ErrorKind::plugin,
                    "{}: the plugin needs ABI {} or newer, this Keel has ABI {}; update Keel, or "
                    "use an older build of the plugin",
                    who, abi_text(plugin.min_host_abi), abi_text(KEEL_ABI_VERSION));
    }
    refuse_sanitizer(plugin.sanitizer, who);
    if (!good_id(id)) {
        throw_error(ErrorKind::plugin,
                    "{}: the plugin's id '{}' is not of the form [a-z][a-z0-9_]*; this is a fault "
                    "of the plugin: report it to its author",
                    who, id);
    }
}

} // namespace

std::string kind_name(keel_plugin_kind kind) {
    switch (kind) {
    case KEEL_PLUGIN_BACKEND: return "backend";
    case KEEL_PLUGIN_POLICY: return "policy";
    case KEEL_PLUGIN_ALLOCATOR: return "budget allocator";
    default: return fmt::format("plugin of kind {}", kind);
    }
}

std::string abi_text(uint32_t version) {
    return fmt::format("{}.{}", version >> 16, version & 0xffff);
}

PluginLibrary::PluginLibrary(const fs::path &path, const SourceLocation &at) : path_(path) {
    const std::string who = who_text(at, path);
    if (!path.is_absolute())
        throw_error(ErrorKind::plugin,
                    "{}: the path must be absolute; give the whole path, or a name", who);
    check_file(path, who);
    SharedLibrary library = open_library(path, who);
    descriptor_ = query(library, who);
    id_ = copy_text(descriptor_.id);
    check_descriptor(descriptor_, id_, who);
    version_ = copy_text(descriptor_.version);
    vendor_ = copy_text(descriptor_.vendor);
    license_ = copy_text(descriptor_.license);
    doc_ = copy_text(descriptor_.doc);
    build_info_ = copy_text(descriptor_.build_info);
    const std::string named = fmt::format("{} ('{}')", who, id_);
    switch (kind()) {
    case KEEL_PLUGIN_BACKEND: table_ = adopt_backend(descriptor_.vtable, named); break;
    case KEEL_PLUGIN_POLICY: table_ = adopt_policy(descriptor_.vtable, named); break;
    case KEEL_PLUGIN_ALLOCATOR: table_ = adopt_allocator(descriptor_.vtable, named); break;
    default:
        throw_error(
            ErrorKind::plugin,
            "{}: the plugin is of kind {}, which this Keel (ABI {}) does not know; update Keel",
            named, kind(), abi_text(KEEL_ABI_VERSION));
    }
    try {
        params_ = ParamTable(name(), descriptor_.params, descriptor_.n_params);
    } catch (const Error &failure) {
        throw_error(ErrorKind::plugin, "{}: {}", who, failure.what());
    }
    // The plugin is accepted, so the library stays mapped from here on. If a check above throws,
    // `library` closes the file.
    keep_mapped(std::move(library));
}

const void *PluginLibrary::extension(const char *id) const {
    return descriptor_.get_extension == nullptr ? nullptr : descriptor_.get_extension(id);
}

void PluginLibrary::require_kind(keel_plugin_kind wanted, const SourceLocation &at) const {
    if (kind() == wanted) return;
    const std::string want = kind_name(wanted);
    throw_at(at, ErrorKind::plugin,
             "{} is a {}, but this key needs a {}; name a {} (plugin file: {})", id_,
             kind_name(kind()), want, want, printable(path_.string(), 400));
}

void PluginLibrary::throw_wrong_table() const {
    throw_error(ErrorKind::internal,
                "{}: the plugin is a {}, but the caller requested the table of another kind",
                path_.string(), kind_name(kind()));
}

} // namespace keel
