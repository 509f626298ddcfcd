// Tests of memory pressure: how PressureWatch interprets readings, and how a cache reacts, with a
// scripted monitor and with real memory.
#include "kv/manager_run.hpp"
#include "platform/memory.hpp"
#include "support/skip.hpp"
#include "support/temp_folder.hpp"

#include <keel/plugin.h>

#include <catch2/catch.hpp>

#include <fstream>
#include <nlohmann/json.hpp>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;
using Change = PressureWatch::Change;

namespace {

constexpr uint64_t mib = uint64_t{1} << 20;

// A system monitor that returns the values that the test sets.
struct ScriptedMonitor final : SystemMonitor {
    MemoryReading read() noexcept override {
        ++reads;
        MemoryReading reading;
        reading.memory = {8192 * mib, available_mib * mib, "a script"};
        reading.stalled = stalled;
        reading.stalled_where = "a script's PSI";
        return reading;
    }
    uint64_t available_mib = 4096;
    std::optional<double> stalled;
    int reads = 0;
};

PressureConfig at_each_step() {
    PressureConfig config;
    config.low = 400 * mib;
    config.critical = 100 * mib;
    config.stalled = 20;
    config.levels = {0.75, 0.5, 0.25};
    config.cooldown = 4;
    config.interval = std::chrono::milliseconds(0);
    return config;
}

KvShape pressure_shape() { return kv_shape(256, KEEL_DTYPE_F16, 2); }

struct Watched {
    explicit Watched(CacheConfig config = {}, uint32_t flags = KEEL_POLICY_BLOCKWISE)
        : script(newest_are_best(flags)), monitor(std::make_shared<ScriptedMonitor>()) {
        config.policy = scripted(script);
        config.budget_unit = BudgetUnit::tokens;
        config.budget = 80;
        config.slack = 0;
        if (!config.pressure) config.pressure = at_each_step();
        config.monitor = monitor;
        run = std::make_unique<ManagerRun>("reference", pressure_shape(), config);
    }
    int64_t length() const { return run->manager->cache().max_length(); }
    std::vector<EvictionRecord> decode() { return run->step(1, StepKind::decode); }

    Script script;
    std::shared_ptr<ScriptedMonitor> monitor;
    std::unique_ptr<ManagerRun> run;
};

} // namespace

TEST_CASE("A watch lowers the budget while memory is short, rests between steps, and rises well "
          "above the threshold") {
    auto monitor = std::make_shared<ScriptedMonitor>();
    PressureWatch watch(at_each_step(), monitor);
    CHECK(watch.poll(0, 100) == Change::none);
    CHECK_FALSE(watch.cap());
    monitor->available_mib = 399;
    CHECK(watch.poll(1, 100) == Change::tighter);
    CHECK(watch.cap() == 75);
    CHECK(watch.state().level == 1);
    CHECK(watch.state().available == 399 * mib);
    CHECK(watch.state().low == 400 * mib);
    CHECK_THAT(watch.state().why, Contains("399.0 MiB") && Contains("a script") &&
                                      Contains("below the threshold of 400.0 MiB"));
    for (int64_t t = 2; t < 5; ++t)
        // the last change has not had time to take effect
        CHECK(watch.poll(t, 100) == Change::none);
    CHECK(watch.poll(5, 100) == Change::tighter);
    CHECK(watch.poll(9, 100) == Change::tighter);
    CHECK(watch.cap() == 25);
    CHECK(watch.poll(20, 100) == Change::none); // there is no smaller budget
    monitor->available_mib = 599; // memory is not short, but also not well above the limit
    CHECK(watch.poll(30, 100) == Change::none);
    CHECK(watch.cap() == 25);
    monitor->available_mib = 600;
    CHECK(watch.poll(31, 100) == Change::looser);
    CHECK(watch.poll(32, 100) == Change::none);
    CHECK(watch.poll(35, 100) == Change::looser);
    CHECK(watch.cap() == 75);
    CHECK(watch.poll(39, 100) == Change::looser);
    CHECK_FALSE(watch.cap());
    CHECK(watch.state().level == 0);
}

TEST_CASE("A watch lowers the budget to the minimum if memory is critical, and reads stalls") {
    auto monitor = std::make_shared<ScriptedMonitor>();
    PressureWatch watch(at_each_step(), monitor);
    monitor->available_mib = 99;
    CHECK(watch.poll(0, 1000) == Change::tighter);
    CHECK(watch.cap() == 250);
    watch.restart();
    monitor->available_mib = 4096;
    monitor->stalled = 19.9;
    CHECK(watch.poll(0, 1000) == Change::none);
    monitor->stalled = 20;
    CHECK(watch.poll(0, 1000) == Change::tighter);
    CHECK_THAT(watch.state().why, Contains("20.0%") && Contains("a script's PSI"));
    monitor->stalled = 11; // the value must fall below half of the limit
    CHECK(watch.poll(100, 1000) == Change::none);
    monitor->stalled = 9;
    CHECK(watch.poll(100, 1000) == Change::looser);
}

TEST_CASE("Default thresholds depend on the memory of the machine") {
    struct Fixed final : SystemMonitor {
        explicit Fixed(MemoryInfo i) : info(std::move(i)) {}
        MemoryReading read() noexcept override { return {info, std::nullopt, {}}; }
        MemoryInfo info;
    };
    PressureConfig config;
    config.levels = {0.75, 0.5, 0.25};
    config.interval = std::chrono::milliseconds(0);
    const auto cap = [&](uint64_t total, uint64_t available) {
        PressureWatch watch(config, std::make_shared<Fixed>(MemoryInfo{total, available, "fixed"}));
        watch.poll(0, 100);
        return watch.cap().value_or(100);
    };
    CHECK(cap(64 * 1024 * mib, 256 * mib) == 100);
    CHECK(cap(64 * 1024 * mib, 255 * mib) == 75);
    CHECK(cap(64 * 1024 * mib, 63 * mib) == 25); // a quarter of the total
    CHECK(cap(500 * mib, 50 * mib) == 100);
    CHECK(cap(500 * mib, 49 * mib) == 75);
    CHECK(cap(0, 0) == 100); // the sizes are unknown
}

TEST_CASE("A cache under pressure shrinks in steps, stays small, and grows again") {
    Watched w;
    w.run->step(100, StepKind::prefill_end);
    CHECK(w.length() == 80);
    w.monitor->available_mib = 300;
    std::vector<int64_t> lengths;
    std::vector<keel_trigger> triggers;
    for (int i = 0; i < 20; ++i) {
        for (const EvictionRecord &r : w.decode()) {
            if (r.layer != 0) continue;
            triggers.push_back(r.trigger);
            REQUIRE(r.pressure);
            CHECK(r.pressure->available == 300 * mib);
        }
        lengths.push_back(w.length());
    }
    CHECK(lengths.front() == 60);
    CHECK(lengths[3] == 60);
    CHECK(lengths[4] == 40);
    CHECK(lengths[8] == 20);
    CHECK(lengths.back() == 20); // the length is never larger while memory is short
    CHECK(std::all_of(triggers.begin(), triggers.end(),
                      [](keel_trigger t) { return t == KEEL_TRIGGER_PRESSURE; }));
    CHECK(w.run->manager->evicted_bytes() > 0);
    w.monitor->available_mib = 4096;
    int64_t longest = 0;
    for (int i = 0; i < 90; ++i) {
        for (const EvictionRecord &r : w.decode())
            if (w.length() == 80) CHECK_FALSE(r.pressure);
        longest = std::max(longest, w.length());
    }
    CHECK(longest == 80);
}

TEST_CASE("Pressure keeps protected slots, and later steps also free slots below the budget") {
    CacheConfig config;
    config.protect_prefix = 30;
    config.protect_recent = 20;
    Watched w(config);
    w.run->step(55, StepKind::prefill_end);
    w.monitor->available_mib = 50; // the smallest budget: 20 slots
    const auto records = w.decode();
    REQUIRE(records.size() == 2);
    CHECK(w.length() == 51); // 30 + 20 slots and one more
    const auto kept = w.run->manager->cache().positions(1, 1);
    CHECK(kept.front() == 0);
    CHECK(kept[29] == 29);
    CHECK(kept.back() == 55);
}

TEST_CASE("Policies act on pressure between chunks of a prompt if they can, otherwise at its end") {
    for (const bool blockwise : {true, false}) {
        Watched w({}, blockwise ? KEEL_POLICY_BLOCKWISE : 0);
        w.monitor->available_mib = 50;
        const auto first = w.run->step(40, StepKind::prefill_chunk);
        CHECK(first.empty() != blockwise);
        CHECK(w.length() == (blockwise ? 20 : 40));
        const auto last = w.run->step(10, StepKind::prefill_end);
        CHECK_FALSE(last.empty());
        CHECK(w.length() == 20);
    }
}

TEST_CASE("Memory is not read at each step, and without a watch its files are not opened") {
    PressureConfig pressure = at_each_step();
    pressure.interval = std::chrono::milliseconds(60000);
    CacheConfig config;
    config.pressure = pressure;
    Watched w(config);
    w.run->step(20, StepKind::prefill_end);
    for (int i = 0; i < 50; ++i) w.decode();
    CHECK(w.monitor->reads == 1);
}

TEST_CASE("A fork continues under its parent's pressure") {
    Watched w;
    w.run->step(80, StepKind::prefill_end);
    w.monitor->available_mib = 50;
    w.decode();
    CHECK(w.length() == 20);
    const auto fork = w.run->manager->fork();
    CHECK(fork->cache().max_length() == 20);
    std::string why;
    CHECK(fork->can_take(1000, false, &why));
}

TEST_CASE("The log has the reading, the cache's step, and the rule that divides the budget") {
    const TempFolder folder;
    CacheConfig config;
    config.log = (folder / "log.jsonl").string();
    config.log_positions = true;
    {
        Watched w(config);
        w.run->step(60, StepKind::prefill_end);
        w.monitor->available_mib = 350;
        w.decode();
    }
    std::ifstream in(folder / "log.jsonl");
    std::string line;
    REQUIRE(std::getline(in, line));
    const auto json = nlohmann::json::parse(line);
    CHECK(json.at("trigger") == "pressure");
    CHECK(json.at("budget") == 60);
    CHECK(json.at("pressure").at("step") == 1);
    CHECK(json.at("pressure").at("share") == 0.75);
    CHECK(json.at("pressure").at("available_bytes") == 350 * mib);
    CHECK(json.at("pressure").at("low_bytes") == 400 * mib);
    CHECK(json.at("pressure").at("limited_by") == "a script");
    CHECK(json.at("kept") == nlohmann::json({60, 60}));
    CHECK(json.at("kept_tokens") == nlohmann::json::parse("[[[1,61]],[[1,61]]]"));
    CHECK(json.at("time").get<std::string>().ends_with("Z"));
    CHECK(json.at("scores").at("max") == 60);
}

// ---- with real memory; see also memory_limit_test.cpp ----

TEST_CASE("What an eviction frees is memory of the system again") {
    if (KEEL_SANITIZER_HERE != KEEL_SANITIZER_NONE) skip("a sanitizer holds freed memory back");
    KvShape shape = pressure_shape();
    shape.heads = shape.kv_heads = 4;
    shape.head_dim = 256;
    shape.key_dtype = shape.value_dtype = KEEL_DTYPE_F32;
    shape.block_slots = 64;
    shape.max_slots = 4096;
    shape.sequences = 1;
    for (const std::string &device : kv_devices()) {
        if (device == "reference") continue; // the reference keeps its plain memory
        INFO(device);
        Script script = newest_are_best();
        CacheConfig config;
        config.policy = scripted(script);
        config.budget_unit = BudgetUnit::tokens;
        config.budget = 256;
        ManagerRun run(device, shape, config);
        run.manager->before_append(4096, StepKind::prefill_chunk);
        run.rig.feed(run.manager->cache(), 0,
                     4096); // not with the manager, which would evict between chunks
        const uint64_t held = run.manager->cache().bytes_in_use(), before = resident_bytes();
        REQUIRE(held == 64 * mib);
        run.manager->evict();
        run.rig.executor().stream().wait();
        run.rig.executor()
            .device()
            .trim(); // frees the old buffers of an arena that grew by copying
        CHECK(run.manager->cache().bytes_in_use() == held / 16);
        const uint64_t after = resident_bytes();
        CHECK(before > after);
        CHECK(before - after > (held - held / 16) * 9 / 10);
    }
}
