// The slots that each policy keeps on a GPU backend, against the CPU's: at the end of a prompt,
// while decoding, and under memory pressure.
#include "run/session.hpp"
#include "support/gpu_backends.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>

using namespace keel;
using test::opencl;
using test::vulkan;

namespace {

struct ShortMemory final : SystemMonitor {
    MemoryReading read() noexcept override {
        MemoryReading reading;
        reading.memory = {uint64_t{8} << 30, is_short ? uint64_t{1} << 20 : uint64_t{4} << 30,
                          "a test"};
        return reading;
    }
    bool is_short = false;
};

using Slots = std::vector<std::vector<int32_t>>; // [layers * kv_heads] positions

Slots slots_of(Session &session) {
    const KvCache &cache = session.cache().cache();
    Slots all;
    for (size_t row = 0; row < cache.rows(); ++row) {
        const auto positions = cache.row_positions(row);
        all.emplace_back(positions.begin(), positions.end());
    }
    return all;
}

// After the prompt, after decoding, and after the last step, when memory is short.
std::vector<Slots> slots_under(const std::string &backend, const std::string &policy) {
    std::vector<std::string> sets = {std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                     "backend.plugin=" + backend,
                                     "kv.dtype=f32",
                                     "policy.plugin=" + policy,
                                     "policy.budget.tokens=60",
                                     "policy.budget.slack=4",
                                     "policy.trigger.on=[prefill_end, budget, pressure]",
                                     "model.context=768"};
    if (backend == "cpu") sets.push_back("backend.params.compute=exact");
    const auto monitor = std::make_shared<ShortMemory>();
    PipelineOptions options;
    options.quiet_fallbacks = true;
    options.monitor = monitor;
    Pipeline pipeline(pipeline::config_from_overrides(sets), options);
    Session session(pipeline);
    std::vector<int32_t> ids;
    for (int i = 0; i < 300; ++i)
        ids.push_back((i * 7919 + 13) % static_cast<int>(pipeline.model().vocab_size - 300) + 280);
    session.prefill(ids);
    session.decode(ids.front()); // ends the step before it
    std::vector<Slots> all = {slots_of(session)};
    const auto decode = [&] {
        for (int i = 0; i < 6; ++i) session.decode(ids[static_cast<size_t>(i)]);
        all.push_back(slots_of(session));
    };
    decode();
    monitor->is_short = true;
    decode();
    return all;
}

double agreement(const Slots &a, const Slots &b) {
    size_t same = 0, all = 0;
    for (size_t row = 0; row < a.size(); ++row) {
        std::vector<int32_t> both;
        std::set_intersection(a[row].begin(), a[row].end(), b[row].begin(), b[row].end(),
                              std::back_inserter(both));
        same += both.size();
        all += std::max(a[row].size(), b[row].size());
    }
    return static_cast<double>(same) / static_cast<double>(all);
}

} // namespace

TEMPLATE_TEST_CASE("a GPU backend keeps the slots of the CPU under each policy", "", opencl,
                   vulkan) {
    const std::string backend = test::here<TestType>();
    for (const std::string policy : {"snapkv", "h2o", "tova", "keydiff", "knorm",
                                     "expected_attention", "compactor", "kvzip"}) {
        INFO(backend << " " << policy);
        const auto cpu = slots_under("cpu", policy), mine = slots_under(backend, policy);
        for (size_t i = 0; i < cpu.size(); ++i) {
            INFO("the " << i << "th look");
            // Sums in another order may exchange slots whose scores are nearly equal.
            CHECK(agreement(cpu[i], mine[i]) > 0.97);
        }
        CHECK(mine[2][0].size() < mine[1][0].size());
    }
}
