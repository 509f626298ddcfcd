#pragma once

#include "eval/ab/records/record.hpp"
#include "eval/ab/verdicts/summary.hpp"
#include "support/contains.hpp"
#include "support/temp_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

// Small generated experiments.
namespace keel::test {

inline ab::Header made_header() {
    ab::Header h;
    h.config_hash = "0123456789abcdef";
    h.model = "tiny";
    h.title = "a test";
    h.reference = "full";
    h.arms = {{"full", ""}, {"window", ""}, {"snapkv", ""}, {"q4cache", ""}};
    h.statistics.resamples = 1000;
    return h;
}

inline ab::Item made_item(const std::string &arm, const std::string &budget,
                          const std::string &item, double value,
                          const std::string &metric = "hit") {
    ab::Item i;
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

// Writes results.jsonl to a folder.
inline std::filesystem::path write_ab(const std::filesystem::path &folder, const ab::Header &header,
                                      const std::vector<ab::Record> &records) {
    std::filesystem::create_directories(folder);
    ab::Writer writer(folder / "results.jsonl", header, ab::Writer::Mode::create);
    for (const ab::Record &record : records) writer.write(record);
    return folder;
}

// Records that were written, read back and summarized.
struct LoadedAb {
    ab::Names names;
    ab::Table table;
    ab::Summary summary;
};

inline std::unique_ptr<LoadedAb> load_ab(const TempFolder &folder, const ab::Header &header,
                                         const std::vector<ab::Record> &records) {
    static int number = 0;
    auto out = std::make_unique<LoadedAb>();
    out->table = ab::load_table(write_ab(folder / fmt::format("r{}", number++), header, records),
                                out->names);
    out->summary = ab::summarize(out->table, out->names);
    return out;
}

// Returns the contrast of these arms on this metric, or NULL if there is none.
inline const ab::Contrast *find_contrast(const std::vector<ab::Contrast> &all, const std::string &a,
                                         const std::string &b, const std::string &metric = "hit") {
    for (const ab::Contrast &c : all)
        if (c.a == a && c.b == b && c.metric == metric) return &c;
    return nullptr;
}

inline bool warned(const ab::Summary &summary, const std::string &part) {
    return std::any_of(summary.warnings.begin(), summary.warnings.end(),
                       [&](const ab::Warning &warning) { return contains(warning.text, part); });
}

// Returns pairs for two arms a and b in which each item is its own document.
inline ab::Pairs made_pairs(const std::vector<double> &a, const std::vector<double> &b) {
    ab::Pairs pairs;
    pairs.a = a;
    pairs.b = b;
    for (uint32_t i = 0; i < a.size(); ++i) pairs.clusters.push_back(i);
    return pairs;
}

// Returns a planned contrast of the family "x", without numbers.
inline ab::Contrast made_contrast(const std::string &metric) {
    ab::Contrast c;
    c.planned = true;
    c.family = "x";
    c.a = "a";
    c.b = "b";
    c.task = "t";
    c.metric = metric;
    c.meaning = ab::metric_named(metric);
    return c;
}

} // namespace keel::test
