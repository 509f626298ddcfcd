// Tests of the processor and a GPU backend in one run. PoCL and lavapipe count as GPUs.
#include "hybrid_rig.hpp"
#include "support/gpu_backends.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;

namespace {

// With `fast`, each instruction set rounds activations differently.
pipeline::PipelineConfig exact_cpu(std::vector<std::string> more) {
    more.push_back("backend.params.compute=exact");
    return one_cpu(std::move(more));
}

} // namespace

TEMPLATE_TEST_CASE(
    "the processor and another backend can share a run in every way, with the processor's text", "",
    opencl, vulkan) {
    const std::string plugin = here<TestType>();
    const Greedy one = greedy(exact_cpu({}), hybrid_opening(), 16);
    const std::string backends = "hybrid.backends={gpu: {plugin: " + plugin +
                                 "}, host: {plugin: cpu, params: {threads: 1, compute: exact}}}";
    const std::vector<std::vector<std::string>> ways = {
        {"hybrid.prefill=gpu", "hybrid.decode=host"},
        {"hybrid.prefill=host", "hybrid.decode=gpu",
         "hybrid.switch={on: tokens, after_tokens: 8, to: host}"},
        {"hybrid.decode=host",
         "hybrid.switch={on: tokens, after_tokens: 8, to: gpu, warmup_tokens: 4}"},
        {"hybrid.layers=[{range: 0-2, on: gpu}, {range: 3-5, on: host}]"},
    };
    for (std::vector<std::string> way : ways) {
        INFO(plugin << ": " << way.front());
        way.insert(way.begin(), {backends, "strict=true"});
        CHECK(greedy(tiny_config(way), hybrid_opening(), 16).ids == one.ids);
    }
}

TEMPLATE_TEST_CASE("policies and quantized caches move between the processor and another backend",
                   "", opencl, vulkan) {
    const std::string plugin = here<TestType>();
    for (const std::vector<std::string> &policy : std::vector<std::vector<std::string>>{
             {"policy=sliding_window", "policy.budget.tokens=40", "policy.protect.prefix=4",
              "policy.positions=rerotated", "kv.dtype=q8_0"},
             {"policy=snapkv", "policy.budget.tokens=40"},
             {"policy=h2o", "policy.budget.tokens=40"}}) {
        INFO(plugin << ", " << policy.front());
        std::vector<std::string> sets = {
            "hybrid.backends={gpu: {plugin: " + plugin +
                "}, host: {plugin: cpu, params: {threads: 1, compute: exact}}}",
            "hybrid.prefill=gpu", "hybrid.decode=host",
            "hybrid.switch={on: tokens, after_tokens: 8, to: gpu}"};
        sets.insert(sets.end(), policy.begin(), policy.end());
        const std::string prompt = hybrid_opening() + hybrid_opening() + hybrid_opening();
        std::vector<std::string> full = policy;
        std::erase_if(full, [](const std::string &set) { return set.rfind("kv.dtype=", 0) == 0; });
        full.push_back("kv.dtype=f32");
        // All runs give the same tokens, also the run on the processor alone. So the content of the
        // cache is the same after each move.
        const std::vector<int32_t> text = greedy(exact_cpu(full), prompt, 24).ids;
        const auto exact = logits_of(exact_cpu(full), prompt, text),
                   stays = logits_of(exact_cpu(policy), prompt, text);
        Pipeline pipeline(tiny_config(sets));
        Session session(pipeline);
        const auto moved = logits_of(session, prompt, text);
        const double own = worst_gap(stays, exact), gap = worst_gap(moved, stays);
        INFO("moved and not: " << gap << " apart; the type's own error " << own);
        CHECK(gap < 1e-3 + own);
        const SessionStats stats = session.stats();
        CHECK(stats.moves.size() == 2);
        CHECK(stats.evictions > 0);
        for (const BackendMove &move : stats.moves) CHECK(move.refused.empty());
    }
}
