// What the tests of whole runs on the GPU backends share.
#pragma once

#include "base/error.hpp"
#include "run/pipeline.hpp"
#include "support/driver_caches.hpp"

#include <catch2/catch.hpp>

#include <sstream>
#include <string>
#include <vector>

namespace keel::test {

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
