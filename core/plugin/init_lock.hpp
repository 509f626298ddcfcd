#pragma once

#include <mutex>

namespace keel {

// Held around every [init] call into a plugin, so that no two of them meet (abi.h, THREAD TAGS):
// pipelines may be made on several threads. One for all plugins: these calls are few, and a plugin
// may share code with another.
[[nodiscard]] inline std::unique_lock<std::mutex> lock_plugin_init() {
    static std::mutex mutex;
    return std::unique_lock(mutex);
}

} // namespace keel
