// Tests of every policy under memory pressure, including policies that act at the end of a prompt.
// They decide by their own rule, or by a fallback rule that needs only the cache.
#include "kv/tapped_run.hpp"
#include "plugin/library.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace keel;
using namespace keel::test;

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

struct Pressed {
    explicit Pressed(CacheConfig c)
        : monitor(std::make_shared<ShortMemory>()), config(std::move(c)) {
        config.pressure.emplace();
        config.pressure->levels = {0.5, 0.25};
        config.pressure->interval = std::chrono::milliseconds(0);
        config.monitor = monitor;
        config.budget_unit = BudgetUnit::tokens;
        config.budget = 100;
        config.rope_frequencies = std::vector<double>(16, 0.1);
    }
    std::shared_ptr<ShortMemory> monitor;
    CacheConfig config;
};

struct Plugin {
    explicit Plugin(const std::string &name)
        : library(std::filesystem::path(KEEL_BINARY_DIR) / "lib/keel/plugins" / (name + ".so"), {}),
          params(library.params().bind({}, {})) {}
    CacheConfig config() const {
        CacheConfig config;
        config.policy = {library.id(), &library.policy(), params.data(), params.size()};
        return config;
    }
    PluginLibrary library;
    ParamValues params;
};

class SilentRepeat final : public SequenceForward {
  public:
    std::span<const int32_t> tokens() const override { return {}; }
    std::span<const int32_t> instruction(bool) const override { return {}; }
    void forward(std::span<const int32_t>, std::span<const int32_t>, StepTap &) override {}
};

// The slots that a policy keeps of 70 tokens if pressure halves its budget, and the rule that chose
// them.
struct Left {
    std::vector<std::vector<int32_t>> positions;
    std::string rule;
};

Left under_pressure(const std::string &name, const std::string &device) {
    const Plugin plugin(name);
    Pressed pressed(plugin.config());
    TappedRun run(device, kv_shape(128, KEEL_DTYPE_F32), pressed.config);
    SilentRepeat repeat;
    run.manager->set_forward(&repeat);
    run.step(40, StepKind::prefill_chunk);
    CHECK(run.step(28, StepKind::prefill_end).empty());
    CHECK(run.step(1, StepKind::decode).empty());
    pressed.monitor->is_short = true;
    const auto records = run.step(1, StepKind::decode);
    REQUIRE(records.size() == 2);
    CHECK(records.front().trigger == KEEL_TRIGGER_PRESSURE);
    Left left;
    left.rule = records.front().rule == nullptr ? "" : records.front().rule;
    const KvCache &cache = run.manager->cache();
    // A quarter of the budget. snapkv needs at least one slot in addition to its window of 32.
    CHECK(cache.total_length() <= 33 * static_cast<int64_t>(cache.rows()));
    for (size_t row = 0; row < cache.rows(); ++row) {
        const auto positions = cache.row_positions(row);
        left.positions.emplace_back(positions.begin(), positions.end());
    }
    run.step(1, StepKind::decode); // the sequence continues
    return left;
}

} // namespace

TEST_CASE(
    "Every policy evicts under memory pressure, by the rule of keydiff if its inputs are missing") {
    for (const std::string &device : kv_devices()) {
        const Left by_keys = under_pressure("keydiff", device);
        CHECK(by_keys.rule.empty());
        for (const std::string name : {"random", "sliding_window", "snapkv", "h2o", "tova", "knorm",
                                       "expected_attention", "compactor", "kvzip"}) {
            INFO(device << " " << name);
            const Left left = under_pressure(name, device);
            if (name == "compactor" || name == "kvzip") {
                CHECK(left.rule == "keydiff");
                CHECK(left.positions == by_keys.positions);
            } else {
                CHECK(left.rule.empty());
            }
        }
    }
}

TEST_CASE(
    "Under memory pressure, a policy that acts once sees the attention of the current query") {
    for (const std::string &device : kv_devices()) {
        INFO(device);
        int64_t queries = 0;
        double paid = 0;
        Script script;
        script.needs.needs = KEEL_NEED_WINDOW_SCORES;
        script.needs.flags = KEEL_POLICY_PREFILL_ONLY;
        script.needs.granularity = KEEL_KEEP_HEAD_EQUAL;
        script.needs.output = KEEL_OUTPUT_SCORES;
        script.needs.window = 6;
        script.needs.reduce_queries = KEEL_REDUCE_MEAN;
        script.needs.reduce_group = KEEL_REDUCE_MEAN;
        script.decide = [&](const keel_policy_input &in, keel_policy_decision &out) {
            queries = in.query_count;
            for (uint32_t h = 0; h < in.kv_heads; ++h) {
                paid = 0;
                for (int32_t s = 0; s < in.lengths[h]; ++s)
                    paid += double{out.scores[h * in.stride + s] = in.scores[h * in.stride + s]};
            }
            return KEEL_OK;
        };
        CacheConfig config;
        config.policy = scripted(script);
        Pressed pressed(config);
        TappedRun run(device, kv_shape(128, KEEL_DTYPE_F32), pressed.config);
        run.step(30, StepKind::prefill_end);
        run.step(1, StepKind::decode);
        CHECK(script.decided == 0);
        pressed.monitor->is_short = true;
        run.step(1, StepKind::decode);
        CHECK(queries == 1);
        CHECK(paid == Approx(1));
        CHECK(run.manager->policy_bytes() < 1000);
    }
}

TEST_CASE("The log names the rule that replaced the policy") {
    const TempFolder folder;
    const std::string path = (folder / "log.jsonl").string();
    const Plugin plugin("kvzip");
    Pressed pressed(plugin.config());
    pressed.config.log = path;
    {
        TappedRun run("reference", kv_shape(128, KEEL_DTYPE_F32), pressed.config);
        run.step(60, StepKind::prefill_end);
        pressed.monitor->is_short = true;
        run.step(1, StepKind::decode);
    }
    std::ifstream in(path);
    std::string line;
    REQUIRE(std::getline(in, line));
    const auto json = nlohmann::json::parse(line);
    CHECK(json.at("policy") == "kvzip");
    CHECK(json.at("rule") == "keydiff");
    CHECK(json.at("trigger") == "pressure");
}
