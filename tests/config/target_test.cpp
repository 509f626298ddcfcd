#include "config/target.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::pipeline;
using keel::test::error_text;

TEST_CASE("a pipeline file can be read, and a model folder gets the backend cpu") {
    const test::TempFolder folder;
    folder.write("model.safetensors", "");
    const std::filesystem::path file =
        folder.write("p.yaml", "model: m\nbackend: vulkan\nsampling: {seed: 2}\n");
    const std::vector<std::string> sets = {"sampling.seed=3"};
    const PipelineConfig of_file = config_for_target(file.string(), sets);
    CHECK(*of_file.backend.plugin == "vulkan");
    CHECK(*of_file.sampling.seed == 3);
    for (const std::filesystem::path &target : {folder.path(), folder / "model.safetensors"}) {
        const PipelineConfig of_model = config_for_target(target.string());
        CHECK(*of_model.model.path == folder.path());
        CHECK(*of_model.backend.plugin == "cpu");
        CHECK(*of_model.policy.plugin == "none");
    }
}

TEST_CASE("a target that is missing is refused with the name of a similar file") {
    const test::TempFolder folder;
    folder.write("pipeline.yaml", "");
    CHECK(error_text([&] { config_for_target((folder / "pipelin.yaml").string()); }) ==
          (folder / "pipelin.yaml").string() +
              ": no such file or folder; expected a pipeline file, a model folder or a GGUF file; "
              "did you mean '" +
              (folder / "pipeline.yaml").string() + "'?");
}
