#pragma once

#include "eval/ab/records/metric.hpp"
#include "eval/ab/records/record.hpp"

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

// An experiment's records, gathered for statistics: seeds averaged, texts as numbers, maps and
// curves as means.
namespace keel {

// Texts and their numbers. Tables that are to be paired share one.
class AbNames {
  public:
    uint32_t number(std::string_view text);
    const std::string &text(uint32_t number) const { return texts_[number]; }

  private:
    std::deque<std::string> texts_; // does not move what the keys look at
    std::unordered_map<std::string_view, uint32_t> numbers_;
};

// One item in one cell.
struct AbPoint {
    uint32_t item = 0, cluster = 0;
    double value = 0; // mean over the seeds
    int64_t length = 0;
    float depth = -1;
    uint32_t seeds = 0;
    uint32_t expected = 0; // what was expected as an answer, a number of AbNames
};

struct AbCellKey {
    std::string arm, budget, protocol, task, metric;
    auto operator<=>(const AbCellKey &) const = default;
};

// All items of an arm at a budget, by one metric of one task.
struct AbCell : AbCellKey {
    AbMetric kind;
    std::vector<AbPoint> points; // by item
    // Means over the records, but the peak, which is the highest.
    double kv_bytes = 0, full_kv_bytes = 0, own_full_kv_bytes = 0, policy_bytes = 0, kept_slots = 0,
           seen = 0, evictions = 0, eviction_us = 0;
    uint64_t peak_kv_bytes = 0;
    uint64_t records = 0, without_eviction = 0;
    uint64_t repeated = 0,
             contradicting =
                 0; // records of an item and seed that was there before; the first counts
    std::string contradiction; // one such item
};

using AbPlaceKey =
    std::tuple<std::string, std::string, std::string, std::string>; // arm, budget, protocol, task

struct AbMeanMap {
    uint32_t layers = 0, kv_heads = 0;
    uint64_t items = 0;
    std::vector<float>
        bins; // the mean of the items' maps, [layers][kv_heads][AbKeepMap::bin_count]
};

struct AbMeanCurve {
    // Of each position: how many items reach it, their mean and the sum of squares around it.
    std::vector<uint32_t> items;
    std::vector<double> mean, squares;
};

struct AbTable {
    AbHeader header;
    std::vector<AbCell> cells; // in the order of tasks, metrics, protocols, arms, budgets
    std::map<AbPlaceKey, AbMeanMap> keep_maps;
    std::map<AbPlaceKey, AbTimeline> timelines;                       // the first item's
    std::map<std::pair<AbPlaceKey, std::string>, AbMeanCurve> curves; // by metric
    std::vector<AbWarning> warnings;                                  // recorded ones, each once
    std::vector<std::string> notes;                                   // on the file itself
    uint64_t records = 0;

    const AbCell *find(const AbCellKey &key) const;
};

// `path`: a results file, or a folder with results.jsonl. Memory grows with the file, never beyond
// it.
AbTable load_ab_table(const std::filesystem::path &path, AbNames &names);

// The file that `path` names: itself, or results.jsonl in it. Throws Error(input) where there is
// none.
std::filesystem::path ab_results_file(const std::filesystem::path &path);

// "full" first, then tokens, ratio and mib by size: how budgets are listed.
bool ab_budget_before(const std::string &a, const std::string &b);

} // namespace keel
