// Tests under the real memory limit of a control group: a cache alone, and the whole program. A
// case is skipped if the system does not allow making a control group.
#include "kv/manager_run.hpp"
#include "platform/memory.hpp"
#include "support/run_process.hpp"
#include "support/skip.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

namespace fs = std::filesystem;
constexpr uint64_t mib = uint64_t{1} << 20;

void write_number(const fs::path &file, uint64_t value) {
    std::ofstream out(file);
    out << value << std::flush;
    if (!out) throw std::runtime_error("cannot write " + file.string());
}

// A control group with a memory limit. It ends with the object. The constructor throws if the
// system does not allow it.
class LimitedGroup {
  public:
    explicit LimitedGroup(uint64_t bytes) {
        const std::string name = "keel-test-" + std::to_string(::getpid());
        std::ifstream own("/proc/self/cgroup");
        for (std::string line; std::getline(own, line);) {
            const bool v1 = line.find(":memory:/") != std::string::npos,
                       v2 = line.rfind("0::/", 0) == 0;
            if (!v1 && !v2) continue;
            const fs::path mount = v1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
            const fs::path home = mount / line.substr(line.find(":/") + 2);
            const char *limit = v1 ? "memory.limit_in_bytes" : "memory.max";
            for (const fs::path &parent : {home, mount}) {
                std::error_code error;
                if (!fs::exists(parent / "cgroup.procs", error)) continue;
                if (!fs::create_directory(parent / name, error)) continue;
                group_ = parent / name;
                home_ = home;
                if (fs::exists(group_ / limit, error)) {
                    write_number(group_ / limit, bytes);
                    return;
                }
                fs::remove(group_, error);
                group_.clear();
            }
        }
        throw std::runtime_error("no control group with a memory limit can be made here");
    }
    ~LimitedGroup() { leave(); }
    LimitedGroup(const LimitedGroup &) = delete;
    LimitedGroup &operator=(const LimitedGroup &) = delete;

    // Moves this process into the group.
    void enter() {
        write_number(group_ / "cgroup.procs", static_cast<uint64_t>(::getpid()));
        is_inside_ = true;
    }
    void leave() {
        if (group_.empty()) return;
        if (is_inside_) std::ofstream(home_ / "cgroup.procs") << ::getpid() << std::flush;
        ::rmdir(group_.c_str());
        group_.clear();
    }
    const fs::path &path() const { return group_; }

  private:
    fs::path group_, home_;
    bool is_inside_ = false;
};

std::unique_ptr<LimitedGroup> make_group(uint64_t bytes) {
    try {
        return std::make_unique<LimitedGroup>(bytes);
    } catch (const std::exception &e) {
        skip(e.what());
    }
}

PageBuffer touched(uint64_t bytes) {
    PageBuffer buffer(bytes, "a test");
    std::memset(buffer.data(), 1, buffer.size());
    return buffer;
}

// Runs `keel run` in a group, on models/tiny. The policy acts on memory pressure below `available`
// MiB.
ProcessResult run_limited(const LimitedGroup &group, uint64_t available, const fs::path &log) {
    // The shell enters the group and is then replaced by the program.
    const std::string shell =
        "echo $$ > '" + (group.path() / "cgroup.procs").string() + "' && exec \"$@\"";
    std::string prompt;
    for (int i = 0; i < 60; ++i) prompt += "Once upon a time there was a king. ";
    const std::string folder = KEEL_SOURCE_DIR;
    return run_process({"/bin/sh",
                        "-c",
                        shell,
                        "sh",
                        std::string(KEEL_BINARY_DIR) + "/bin/keel",
                        "run",
                        folder + "/models/tiny",
                        "-p",
                        prompt,
                        "-n",
                        "1200",
                        "--greedy",
                        "--ignore-eos",
                        "--json",
                        "--set",
                        "model.context=2048",
                        "--set",
                        "policy={plugin: keydiff, budget: {ratio: 1}, protect: {prefix: 4}, "
                        "trigger: {on: [pressure], "
                        "pressure: {available_mib: " +
                            std::to_string(available) + ", critical_mib: 1}}}",
                        "--set",
                        "policy.log=" + log.string()});
}

} // namespace

TEST_CASE("Under a real memory limit the program evicts, reports it, and generates to the end") {
    constexpr uint64_t limit = 300;
    const auto group = make_group(limit * mib);
    const TempFolder folder;
    {
        INFO("room enough");
        const ProcessResult r = run_limited(*group, 8, folder / "quiet.jsonl");
        INFO(r.err);
        REQUIRE(r.code == 0);
        const auto json = nlohmann::json::parse(r.out);
        CHECK(json.at("ids").size() == 1200);
        CHECK(json.at("stats").at("evictions") == 0);
        CHECK(r.err.find("memory is short") == std::string::npos);
    }
    const ProcessResult r =
        // more than can be available under this limit
        run_limited(*group, limit - 10, folder / "log.jsonl");
    INFO(r.err);
    REQUIRE(r.code == 0);
    const auto json = nlohmann::json::parse(r.out);
    CHECK(json.at("ids").size() == 1200);
    CHECK(json.at("stats").at("evictions") > 0);
    CHECK(json.at("stats").at("evicted_bytes") > 0);
    CHECK_THAT(r.err, Contains("memory is short") && Contains(group->path().filename().string()));
    CHECK(r.peak_bytes < limit * mib);
    std::ifstream log(folder / "log.jsonl");
    nlohmann::json last;
    for (std::string line; std::getline(log, line);) {
        last = nlohmann::json::parse(line);
        CHECK(last.at("trigger") == "pressure");
        CHECK(last.at("pressure").at("limited_by") == group->path().string());
        CHECK(last.at("pressure").at("low_bytes") == (limit - 10) * mib);
        CHECK(last.at("pressure").at("available_bytes") < (limit - 10) * mib);
    }
    REQUIRE(last.is_object());
    CHECK(last.at("kept_max").get<int64_t>() * 4 <= last.at("tokens").get<int64_t>() * 3);
}

TEST_CASE(
    "Under a real memory limit the cache releases memory, and grows again when memory is free") {
    const auto group = make_group(512 * mib);
    group->enter();
    const MemoryReading at_first = system_monitor()->read();
    if (at_first.memory.limited_by != group->path().string()) {
        group->leave();
        skip("the memory is limited by " + at_first.memory.limited_by);
    }
    CHECK(at_first.memory.total == 512 * mib);
    Script script = newest_are_best();
    KvShape shape;
    shape.layers = 2;
    shape.kv_heads = shape.heads = 8;
    shape.head_dim = 128;
    shape.block_slots = 64;
    shape.max_slots = 2048;
    CacheConfig config;
    config.policy = scripted(script);
    config.budget_unit = BudgetUnit::tokens;
    config.budget = 2000;
    PressureConfig pressure;
    pressure.low = 200 * mib;
    pressure.critical = 50 * mib;
    pressure.levels = {0.75, 0.5, 0.25};
    pressure.cooldown = 2;
    pressure.interval = std::chrono::milliseconds(0);
    config.pressure = pressure;
    ManagerRun run("reference", shape, config);
    const auto length = [&] { return run.manager->cache().max_length(); };
    for (int i = 0; i < 25; ++i) run.step(64, StepKind::prefill_chunk);
    CHECK(run.manager->evictions() == 0); // there is enough memory
    {
        const PageBuffer ballast = touched(380 * mib);
        std::vector<int64_t> lengths;
        for (int i = 0; i < 12; ++i) {
            for (const EvictionRecord &r : run.step(1, StepKind::decode)) {
                CHECK(r.trigger == KEEL_TRIGGER_PRESSURE);
                REQUIRE(r.pressure);
                CHECK(r.pressure->limited_by == group->path().string());
                CHECK(r.pressure->available < 200 * mib);
            }
            lengths.push_back(length());
        }
        CHECK(lengths.front() == 1500);
        CHECK(lengths[2] == 1000);
        CHECK(lengths.back() <= 500 + 500 / 8); // the budget and the slack
    }
    for (int i = 0; i < 8; ++i) run.step(64, StepKind::decode);
    CHECK(length() > 900);
}
