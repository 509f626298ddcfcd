// The GPU backends as parameters of TEMPLATE_TEST_CASE. Each backend has its own cases, so that
// ctest shows which backend had no device.
#pragma once

#include "base/error.hpp"
#include "config/params.hpp"
#include "run/pipeline.hpp"
#include "support/driver_caches.hpp"
#include "support/skip.hpp"

#include <filesystem>
#include <memory>
#include <string>

namespace keel::test {

struct opencl {
    static constexpr const char *name = "opencl";
};
struct vulkan {
    static constexpr const char *name = "vulkan";
};

// Returns a section of a config that names the backend. Skips the case if the backend was not
// built.
template <class Backend> pipeline::BackendSection built() {
    const std::string name = Backend::name;
    if (!std::filesystem::exists(KEEL_BINARY_DIR "/lib/keel/plugins/" + name + ".so"))
        skip(name + " was not built");
    pipeline::BackendSection section;
    section.plugin.value = name;
    section.device.value = "auto";
    return section;
}

// Returns the backend's name. Skips the case if the backend was not built or finds no device.
template <class Backend> std::string here() {
    const pipeline::BackendSection section = built<Backend>();
    try {
        open_device(section, std::make_shared<HostServices>());
    } catch (const Error &error) {
        const std::string text = error.what();
        if (text.find("finds no device") == std::string::npos) throw;
        skip(text);
    }
    return Backend::name;
}

} // namespace keel::test
