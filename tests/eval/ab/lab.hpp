#pragma once

#include "eval/ab/records/table.hpp"
#include "eval/ab/run/runner.hpp"
#include "support/contains.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

// Experiments on models/tiny. Each Lab has its own folder.
namespace keel::test {

namespace fs = std::filesystem;

inline const std::string tiny = std::string(KEEL_SOURCE_DIR) + "/models/tiny";

// A base pipeline and an experiment that uses it, in their own folder.
struct Lab {
    TempFolder folder;

    Lab() { base("on: [prefill_end]"); }
    void base(const std::string &trigger) const {
        folder.write("base.yaml",
                     "model: {path: " + tiny +
                         ", context: 512}\nbackend: {plugin: cpu, params: {threads: 1}}\n" +
                         "policy: {plugin: none, protect: {prefix: 4}, trigger: {" + trigger +
                         "}}\n");
    }
    ab::Experiment resolve(const std::string &text) const {
        ab::ResolveOptions options;
        options.circumstances = "test";
        options.host = host;
        return ab::resolve_experiment(
            ab::load_config(folder.write("ab.yaml", "base: base.yaml\n" + text)), options);
    }
    // Runs an experiment into a folder. Returns the written records without the times, which may
    // differ between runs.
    std::multiset<std::string> run(const std::string &text, const std::string &output,
                                   ab::RunOptions options = {}) const {
        const ab::Experiment e = resolve(text + "output: " + output + "\n");
        options.host = host;
        ab::Runner runner(e, options);
        runner.run();
        return records(runner.results());
    }
    static std::multiset<std::string> records(const fs::path &file) {
        std::multiset<std::string> lines;
        ab::read_records(file, [&](ab::Record &&record, uint64_t) {
            if (auto *item = std::get_if<ab::Item>(&record)) {
                CHECK((item->eviction_us > 0) == (item->evictions > 0));
                item->eviction_us = 0;
            }
            if (!std::holds_alternative<ab::Timeline>(record))
                lines.insert(ab::record_line(record));
        });
        return lines;
    }
    // Returns records without the peaks of their bytes. A peak depends on which arm reads the
    // prompt: an arm that shares a prefill keeps the last queries until it evicts, and does not
    // hold the memory that the steps need.
    static std::multiset<std::string> without_peaks(const std::multiset<std::string> &records) {
        std::multiset<std::string> lines;
        for (const std::string &line : records) {
            const size_t at = line.find("\"peak_kv_bytes\":"), end = line.find(',', at);
            lines.insert(at == std::string::npos ? line : line.substr(0, at) + line.substr(end));
        }
        return lines;
    }
    static std::vector<ab::Item> items(const fs::path &file) {
        std::vector<ab::Item> all;
        ab::read_records(file, [&](ab::Record &&record, uint64_t) {
            if (const auto *item = std::get_if<ab::Item>(&record)) all.push_back(*item);
        });
        return all;
    }

    std::shared_ptr<HostServices> host = std::make_shared<HostServices>();
};

} // namespace keel::test
