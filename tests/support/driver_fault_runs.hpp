// Runs of the whole program with a driver that fails: checks that the fault tests of both GPU
// backends share. tests/*/fault_layer.cpp is the layer between the loader and the driver.
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
    std::string plugin;                   // for example "vulkan"
    std::vector<std::string> environment; // variables that load the layer and set the caches
    std::string submit;          // a call that is made for each token, for example "vkQueueSubmit"
    int lost = 0, no_memory = 0; // status codes
    std::string allocate;        // for example "vkAllocateMemory"
    std::string devices;         // for example "vkEnumeratePhysicalDevices"
    std::string build;           // the call that prepares a kernel
    int build_failed = 0;
};

inline ProcessResult run_text(const FailingDriver &driver, const std::string &fault,
                              std::vector<std::string> more,
                              std::vector<std::string> environment = {}) {
    ProcessOptions options;
    options.environment = std::move(environment); // if a name occurs twice, the first one counts
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

// Returns the number of times that each call was made, for one device.
inline std::map<std::string, uint64_t> calls_of(const std::string &path) {
    std::map<std::string, uint64_t> counts;
    std::ifstream file(path);
    std::string name;
    for (uint64_t n = 0; file >> name >> n;) counts[name] = n;
    return counts;
}

// Returns the value of "text" in a run's JSON, without decoding it.
inline std::string text_of(const std::string &json) {
    const size_t begin = json.find("\"text\": \"");
    const size_t end = begin == std::string::npos ? begin : json.find("\",\n", begin);
    return end == std::string::npos ? "" : json.substr(begin + 9, end - begin - 9);
}

inline bool holds(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

// A run loses its device in the middle: it must report this and print the text so far. If another
// backend can continue, the text must be complete.
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

// Cases in which there is a driver but no device, no memory, or a kernel that does not compile: the
// error must name the backend and the cause, and the exit code must be right.
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
