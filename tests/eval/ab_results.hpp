#pragma once

#include "eval/ab/records/record.hpp"

#include <filesystem>
#include <string>
#include <vector>

// Small made-up experiments.
namespace keel::test {

inline AbHeader ab_header() {
    AbHeader h;
    h.config_hash = "0123456789abcdef";
    h.model = "tiny";
    h.title = "a test";
    h.reference = "full";
    h.arms = {{"full", ""}, {"window", ""}, {"snapkv", ""}, {"q4cache", ""}};
    h.statistics.resamples = 1000;
    return h;
}

inline AbItem ab_item(const std::string &arm, const std::string &budget, const std::string &item,
                      double value, const std::string &metric = "hit") {
    AbItem i;
    i.arm = arm;
    i.budget = budget;
    i.task = metric == "hit" ? "passkey" : "continuation";
    i.metric = metric;
    i.item = item;
    i.value = value;
    i.length = 512;
    i.full_kv_bytes = i.peak_kv_bytes = 8000;
    i.kv_bytes = budget == "full" ? 8000 : 2000;
    i.seen = 512;
    i.kept_slots = budget == "full" ? 512 : 128;
    i.evictions = budget == "full" ? 0 : 1;
    return i;
}

// A folder with results.jsonl in it.
inline std::filesystem::path write_ab(const std::filesystem::path &folder, const AbHeader &header,
                                      const std::vector<AbRecord> &records) {
    std::filesystem::create_directories(folder);
    AbWriter writer(folder / "results.jsonl", header, AbWriter::Mode::create);
    for (const AbRecord &record : records)
        writer.write(record);
    return folder;
}

} // namespace keel::test
