// If a driver is installed, its devices must be found. The other tests of the GPU backends are
// skipped if there is no device, so a driver that does not start would not be noticed.
#include "run/generate.hpp"
#include "support/gpu_backends.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>

using namespace keel;
using test::opencl;
using test::vulkan;

namespace {

// Returns true if the name of a file in the folder contains `word`.
bool has_file(const std::filesystem::path &folder, const std::string &word) {
    std::error_code none;
    for (const auto &entry : std::filesystem::directory_iterator(folder, none))
        if (entry.path().filename().string().find(word) != std::string::npos) return true;
    return false;
}

// Returns true if the driver that needs no GPU is installed. If the environment names drivers, the
// user chose other drivers on purpose, or none.
bool is_installed(const std::string &backend) {
    if (backend == "opencl")
        return std::getenv("OCL_ICD_VENDORS") == nullptr && has_file("/etc/OpenCL/vendors", "pocl");
    return std::getenv("VK_DRIVER_FILES") == nullptr &&
           std::getenv("VK_ICD_FILENAMES") == nullptr && has_file("/usr/share/vulkan/icd.d", "lvp");
}

} // namespace

TEMPLATE_TEST_CASE("an installed driver starts", "", opencl, vulkan) {
    const auto section = test::built<TestType>();
    if (!is_installed(section.plugin.value))
        test::skip("no driver that needs no GPU is installed for " + section.plugin.value);
    CHECK_NOTHROW(open_device(section, std::make_shared<HostServices>()));
}

TEMPLATE_TEST_CASE("the shipped config of a GPU backend runs without a fallback", "", opencl,
                   vulkan) {
    const std::string name = test::here<TestType>();
    // The config is strict, like all shipped configs, so a fallback is an error.
    Pipeline pipeline(pipeline::load_config(KEEL_SOURCE_DIR "/configs/" + name + ".yaml"));
    Session session(pipeline);
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = 8;
    options.ignore_end = true;
    CHECK(generate(session, pipeline.tokenizer()->encode("Once upon a time"), options).ids.size() ==
          8);
}
