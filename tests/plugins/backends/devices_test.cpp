// Where a driver is installed its devices are found: the GPU backends' other tests are passed over where there is none, and so would be
// all of them where one does not start.
#include "config/params.hpp"
#include "run/pipeline.hpp"
#include "support/driver_caches.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <sstream>

using namespace keel;

namespace {

// Whether a file of the folder has that word in its name.
bool has_file(const std::filesystem::path &folder, const std::string &word) {
    std::error_code none;
    for (const auto &entry : std::filesystem::directory_iterator(folder, none))
        if (entry.path().filename().string().find(word) != std::string::npos) return true;
    return false;
}

// The drivers that need no GPU. Whoever names drivers in the environment has others, or none, on purpose.
bool is_installed(const std::string &backend) {
    if (backend == "opencl")
        return std::getenv("OCL_ICD_VENDORS") == nullptr && has_file("/etc/OpenCL/vendors", "pocl");
    return std::getenv("VK_DRIVER_FILES") == nullptr && std::getenv("VK_ICD_FILENAMES") == nullptr &&
           has_file("/usr/share/vulkan/icd.d", "lvp");
}

} // namespace

TEST_CASE("a driver that is installed starts") {
    std::istringstream words(KEEL_BACKENDS);
    for (std::string backend; words >> backend;) {
        INFO(backend);
        if (!is_installed(backend)) {
            WARN("no driver that needs no GPU is installed for " << backend);
            continue;
        }
        pipeline::BackendSection section;
        section.plugin.value = backend;
        section.device.value = "auto";
        CHECK_NOTHROW(open_device(section, std::make_shared<HostServices>()));
    }
}
