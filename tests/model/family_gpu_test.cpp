// Compares each family of family_logits.json with Hugging Face transformers on the GPU backends,
// without fallbacks. PoCL and lavapipe count as GPUs.

#include "golden_check.hpp"
#include "support/gpu_backends.hpp"
#include "support/temp_folder.hpp"

using namespace keel;
using namespace keel::test;

TEMPLATE_TEST_CASE("each family gives the logits and tokens of transformers on a GPU", "", opencl,
                   vulkan) {
    const std::string plugin = here<TestType>();
    const std::vector<GoldenCase> cases = read_golden("family_logits.json");
    const std::vector<Miniature> models = read_miniatures("family_logits.json");
    for (size_t i = 0; i < cases.size(); ++i) {
        const GoldenCase &golden = cases[i];
        INFO(golden.name << " on " << plugin);
        const TempFolder folder;
        write_miniature(folder.path(), models[i]);
        const auto pipeline = open(
            exact(folder.path(), plugin, {"model.context=" + std::to_string(models[i].context)}));
        Session session(*pipeline);
        session.prefill(golden.ids);
        check_here(session, golden);
        for (int step = 0; step < 41; ++step) { // to the record at position 100
            const int32_t id = golden.greedy[static_cast<size_t>(step)];
            REQUIRE(session.greedy() == id);
            session.decode(id);
            check_here(session, golden);
        }
    }
}
