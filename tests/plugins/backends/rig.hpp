// What the tests of whole runs on the GPU backends share.
#pragma once

#include "base/error.hpp"
#include "run/pipeline.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace keel::test {

// Compiled kernels are kept in the build folder, before any driver looks where.
struct DriverCaches {
    DriverCaches() {
        setenv("POCL_CACHE_DIR", KEEL_POCL_CACHE, 0);
        setenv("XDG_CACHE_HOME", KEEL_BINARY_DIR "/cache", 0);
    }
};
inline const DriverCaches caches;

// Those that have a device here; the others are warned of.
inline std::vector<std::string> backends() {
    std::istringstream words(KEEL_BACKENDS);
    std::vector<std::string> here;
    for (std::string backend; words >> backend;) {
        try {
            const std::vector<std::string> sets = {
                std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny", "backend.plugin=" + backend};
            Pipeline pipeline(pipeline::config_from_overrides(sets));
            here.push_back(backend);
        } catch (const Error &error) {
            if (std::string(error.what()).find("finds no device") == std::string::npos) throw;
            WARN(error.what());
        }
    }
    return here;
}

} // namespace keel::test
