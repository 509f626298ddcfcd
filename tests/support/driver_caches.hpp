// Include this in a test program that opens GPU drivers.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace keel::test {

// Sets the caches of drivers and GPU backends to the build folder, before drivers look for a cache.
// If PoCL cannot write its cache, it finds no device.
struct DriverCaches {
    DriverCaches() {
        std::error_code ignored;
        std::filesystem::create_directories(KEEL_BINARY_DIR "/pocl-cache", ignored);
        setenv("POCL_CACHE_DIR", KEEL_BINARY_DIR "/pocl-cache", 0);
        setenv("XDG_CACHE_HOME", KEEL_BINARY_DIR "/cache", 0);
    }
};
inline const DriverCaches driver_caches;

} // namespace keel::test
