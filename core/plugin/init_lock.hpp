#pragma once

#include <mutex>

namespace keel {

// Hold this lock during every call into a plugin that creates an object or lists devices, so that
// no two of these calls run at the same time (abi.h, THREADS). Several threads can make pipelines.
// There is one lock for all plugins, because these calls are few and plugins can share code.
[[nodiscard]] inline std::unique_lock<std::mutex> lock_plugin_init() {
    static std::mutex mutex;
    return std::unique_lock(mutex);
}

} // namespace keel
