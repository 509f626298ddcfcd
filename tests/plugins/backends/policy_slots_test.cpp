// Compares the slots that each policy keeps on a GPU backend with those on the CPU: at the end of a
// prompt, while decoding, and under memory pressure.
#include "run/session.hpp"
#include "support/gpu_backends.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

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

using Slots = std::vector<std::vector<int32_t>>; // positions of [layers * kv_heads]

Slots slots_of(Session &session) {
    const KvCache &cache = session.cache().cache();
    Slots all;
    for (size_t row = 0; row < cache.rows(); ++row) {
        const auto positions = cache.row_positions(row);
        all.emplace_back(positions.begin(), positions.end());
    }
    return all;
}

// A model on a backend, with a policy for each of its sessions.
class Model {
  public:
    explicit Model(const std::string &backend)
        : backend_(backend), monitor_(std::make_shared<ShortMemory>()) {
        PipelineOptions options;
        options.quiet_fallbacks = true;
        options.monitor = monitor_;
        pipeline_ = std::make_unique<Pipeline>(config("none"), options);
    }

    // Returns the slots after the prompt, after decoding, and after decoding when memory is short.
    std::vector<Slots> slots_under(const std::string &policy) {
        monitor_->is_short = false;
        Session session(*pipeline_, pipeline_->policies().add(config(policy).policy));
        std::vector<int32_t> ids;
        for (int i = 0; i < 260; ++i)
            ids.push_back((i * 7919 + 13) % static_cast<int>(pipeline_->model().vocab_size - 300) +
                          280);
        session.prefill(ids);
        session.decode(ids.front()); // this ends the previous step
        std::vector<Slots> all = {slots_of(session)};
        const auto decode = [&] {
            for (size_t i = 0; i < 5; ++i) session.decode(ids[i]);
            all.push_back(slots_of(session));
        };
        decode();
        monitor_->is_short = true;
        std::this_thread::sleep_for(
            std::chrono::milliseconds(120)); // the free memory is read at most every 100 ms
        decode();
        return all;
    }

  private:
    pipeline::PipelineConfig config(const std::string &policy) const {
        std::vector<std::string> sets = {std::string("model.path=") + KEEL_SOURCE_DIR +
                                             "/models/tiny",
                                         "backend.plugin=" + backend_, "kv.dtype=f32",
                                         "policy.plugin=" + policy, "model.context=768"};
        if (policy != "none")
            sets.insert(sets.end(), {"policy.budget.tokens=60", "policy.budget.slack=4",
                                     "policy.trigger.on=[prefill_end, budget, pressure]"});
        // Backends may have prompt chunks of different length.
        if (policy == "keydiff") sets.push_back("policy.params.blockwise=false");
        if (backend_ == "cpu") sets.push_back("backend.params.compute=exact");
        return pipeline::config_from_overrides(sets);
    }

    std::string backend_;
    std::shared_ptr<ShortMemory> monitor_;
    std::unique_ptr<Pipeline> pipeline_;
};

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

TEMPLATE_TEST_CASE("a GPU backend keeps the same slots as the CPU, for each policy", "", opencl,
                   vulkan) {
    Model cpu("cpu"), gpu(test::here<TestType>());
    for (const std::string policy :
         {"snapkv", "tova", "keydiff", "expected_attention", "compactor", "kvzip"}) {
        INFO(TestType::name << " " << policy);
        const auto expected = cpu.slots_under(policy), found = gpu.slots_under(policy);
        for (size_t i = 0; i < expected.size(); ++i) {
            INFO("look " << i);
            // Sums in another order can change the order of slots with nearly equal scores.
            CHECK(agreement(expected[i], found[i]) > 0.97);
        }
        CHECK(found[2][0].size() < found[1][0].size());
    }
}
