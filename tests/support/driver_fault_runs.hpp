// Runs of the whole program under a driver that fails: what each GPU backend's fault tests ask
// alike. tests/*/fault_layer.cpp stands between the loader and the driver.
#pragma once

#include "support/run_process.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace keel::test {

struct FailingDriver {
    std::string plugin;                   // "vulkan"
    std::vector<std::string> environment; // that puts the layer in, and finds caches
    std::string submit;                   // a call of each token: "vkQueueSubmit"
    int lost = 0, no_memory = 0;          // codes
    std::string allocate;                 // "vkAllocateMemory"
    std::string devices;                  // "vkEnumeratePhysicalDevices"
    std::string build;                    // what makes a kernel ready
    int build_failed = 0;
};

inline ProcessResult run_text(const FailingDriver &driver, const std::string &fault,
                              std::vector<std::string> more,
                              std::vector<std::string> environment = {}) {
    ProcessOptions options;
    options.environment = std::move(environment); // the first of a name counts
    options.environment.insert(options.environment.end(), driver.environment.begin(),
                               driver.environment.end());
    if (!fault.empty()) options.environment.push_back("KEEL_DRIVER_FAULT=" + fault);
    std::vector<std::string> command = {KEEL_PROGRAM,
                                        "run",
                                        KEEL_SOURCE_DIR "/models/tiny",
                                        "-p",
                                        "Once upon a time",
                                        "--json",
                                        "--ignore-eos",
                                        "--set",
                                        "generation.max_tokens=24",
                                        "--set",
                                        "sampling.temperature=0",
                                        "--set",
                                        "strict=true"};
    command.insert(command.end(), more.begin(), more.end());
    return run_process(command, options);
}

inline std::vector<std::string> backend_of(const FailingDriver &driver) {
    return {"--backend", driver.plugin};
}

// How often each call came in the run of one device.
inline std::map<std::string, uint64_t> calls_of(const std::string &path) {
    std::map<std::string, uint64_t> counts;
    std::ifstream file(path);
    std::string name;
    for (uint64_t n = 0; file >> name >> n;) counts[name] = n;
    return counts;
}

// The value of "text" in a run's JSON, as it is written there.
inline std::string text_of(const std::string &json) {
    const size_t begin = json.find("\"text\": \"");
    const size_t end = begin == std::string::npos ? begin : json.find("\",\n", begin);
    return end == std::string::npos ? "" : json.substr(begin + 9, end - begin - 9);
}

inline bool holds(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

// A run loses its device half-way: it says so, and gives the text so far. Where another backend
// stands by, the text is whole.
inline void check_device_lost(const FailingDriver &driver) {
    const TempFolder folder;
    const std::string counts = folder / "counts";
    const ProcessResult whole =
        run_text(driver, "", backend_of(driver), {"KEEL_DRIVER_COUNTS=" + counts});
    INFO(whole.out << whole.err);
    REQUIRE(whole.code == 0);
    const uint64_t submits = calls_of(counts)[driver.submit];
    REQUIRE(submits > 20);
    const std::string fault =
        driver.submit + " " + std::to_string(submits / 2) + " " + std::to_string(driver.lost);

    const ProcessResult alone = run_text(driver, fault, backend_of(driver));
    INFO(alone.out << alone.err);
    CHECK(alone.code == 1);
    CHECK_FALSE(alone.timed_out);
    CHECK(holds(alone.out, "device_lost"));
    CHECK(holds(alone.err, driver.plugin));
    CHECK(holds(alone.err, "lost"));
    const std::string begun = text_of(alone.out), all = text_of(whole.out);
    CHECK_FALSE(begun.empty());
    CHECK(begun.size() < all.size());
    CHECK(all.compare(0, begun.size(), begun) == 0);

    const ProcessResult hybrid = run_text(
        driver, fault,
        {"--set", "hybrid.backends={gpu: {plugin: " + driver.plugin + "}, host: {plugin: cpu}}",
         "--set", "hybrid.prefill=host", "--set", "hybrid.decode=gpu"});
    INFO(hybrid.out << hybrid.err);
    CHECK(hybrid.code == 0);
    CHECK(text_of(hybrid.out) == all);
    CHECK(holds(hybrid.err, "lost"));
}

// There is a driver and no device, no memory, a kernel that does not build: an error that names
// backend and cause, and an exit code.
inline void check_refusals(const FailingDriver &driver) {
    std::vector<std::string> without_cache = backend_of(driver);
    without_cache.insert(without_cache.end(), {"--set", "backend.params.cache=off"});
    const auto refused = [&](const std::string &fault, int code,
                             const std::vector<std::string> &words) {
        const ProcessResult result = run_text(driver, fault, without_cache);
        INFO(fault << "\n" << result.out << result.err);
        CHECK(result.code == code);
        CHECK_FALSE(result.timed_out);
        CHECK(holds(result.err, driver.plugin));
        for (const std::string &word : words) CHECK(holds(result.err, word));
    };
    refused(driver.devices + " 1+ 0", 2, {"finds no device", "driver"});
    refused(driver.allocate + " 1+ " + std::to_string(driver.no_memory), 2, {"out of memory"});
    refused(driver.allocate + " 3+ " + std::to_string(driver.no_memory), 2, {"out of memory"});
    refused(driver.build + " 1+ " + std::to_string(driver.build_failed), 1, {"kernel"});
}

} // namespace keel::test
