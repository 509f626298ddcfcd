// Tests of models with attention windows on the GPU backends. PoCL and lavapipe count as GPUs.
#include "support/gpu_backends.hpp"
#include "support/texts_at_once.hpp"
#include "windowed_policies.hpp"

using namespace keel;
using namespace keel::test;

TEMPLATE_TEST_CASE("layers that hold only their window give the logits of a full cache on a GPU",
                   "", opencl, vulkan) {
    const std::string plugin = here<TestType>();
    for (const std::string shape : {"gemma3", "gemma2", "mistral"}) {
        INFO(plugin << ", " << shape);
        Pipeline pipeline(pipeline::config_from_overrides(windowed_sets(shape, plugin)));
        Session session(pipeline);
        UncutRun uncut(pipeline);
        CHECK(gap_to_uncut(session, uncut, {70, 100}, 30) < 1e-4);
        const LayerCaches &caches = session.cache().caches();
        CHECK((caches.window() != nullptr ? *caches.window() : caches.main()).max_length() <
              40 + 128);
    }
}

TEMPLATE_TEST_CASE("policies keep the same slots on a GPU as on the processor, with windows", "",
                   opencl, vulkan) {
    const std::string plugin = here<TestType>();
    const std::vector<std::pair<std::string, std::string>> cases = {{"sliding_window", "gemma3"},
                                                                    {"snapkv", "gemma3"},
                                                                    {"h2o", "gemma2"},
                                                                    {"snapkv", "gemma2"},
                                                                    {"kvzip", "gemma2"},
                                                                    {"snapkv", "mistral"},
                                                                    {"h2o", "mistral"}};
    for (const auto &[policy, shape] : cases) {
        INFO(plugin << ", " << policy << " on " << shape);
        const KeptByPolicy gpu(policy, shape, plugin), cpu(policy, shape, "cpu");
        CHECK(gpu.share_of(cpu) > 0.95); // slots with nearly equal scores may differ
    }
}

TEMPLATE_TEST_CASE("sequences with windows attend together on a GPU with the results of each alone",
                   "", opencl, vulkan) {
    PipelineOptions options;
    options.batch = 2;
    Pipeline pipeline(pipeline::config_from_overrides(windowed_sets("gemma2", here<TestType>())),
                      options);
    std::vector<Wish> all = wishes(*pipeline.tokenizer(), 2, 8);
    for (Wish &wish : all) { // longer than the window and its blocks
        const auto more = some_tokens(170);
        wish.ids.insert(wish.ids.end(), more.begin(), more.end());
    }
    check_same_texts(pipeline, all, texts_alone(pipeline, all), texts_at_once(pipeline, all),
                     "f32");
}
