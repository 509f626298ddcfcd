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

// An experiment's records, prepared for statistics: seeds are averaged, texts become numbers, and
// maps and curves become means.
namespace keel::ab {

// Numbers for texts. Two tables whose items are paired must share one Names.
class Names {
  public:
    uint32_t number(std::string_view text);
    const std::string &text(uint32_t number) const { return texts_[number]; }

  private:
    std::deque<std::string> texts_; // a deque, because the keys of numbers_ point into the texts
    std::unordered_map<std::string_view, uint32_t> numbers_;
};

// One item of a cell.
struct Point {
    uint32_t item = 0, cluster = 0;
    double value = 0; // mean over the seeds
    int64_t length = 0;
    float depth = -1;
    uint32_t seeds = 0;
    uint32_t expected = 0; // the expected answer, as a number of Names
};

struct CellKey {
    std::string arm, budget, protocol, task, metric;
    auto operator<=>(const CellKey &) const = default;
};

// All items of an arm at a budget, for one metric of one task.
struct Cell : CellKey {
    Metric kind;
    std::vector<Point> points; // sorted by item
    // Means over the records; the peak is the maximum.
    double kv_bytes = 0, full_kv_bytes = 0, own_full_kv_bytes = 0, policy_bytes = 0, kept_slots = 0,
           seen = 0, evictions = 0, eviction_us = 0;
    uint64_t peak_kv_bytes = 0;
    uint64_t records = 0, without_eviction = 0;
    // Records whose item and seed were there before. The first record counts.
    uint64_t repeated = 0, contradicting = 0;
    std::string contradiction; // the name of one item with contradicting records
};

using PlaceKey =
    std::tuple<std::string, std::string, std::string, std::string>; // arm, budget, protocol, task

struct MeanMap {
    uint32_t layers = 0, kv_heads = 0;
    uint64_t items = 0;
    // The mean of the items' maps, [layers][kv_heads][KeepMap::bin_count].
    std::vector<float> bins;
};

struct MeanCurve {
    // For each position: the number of items that reach it, their mean, and the sum of squared
    // distances from the mean.
    std::vector<uint32_t> items;
    std::vector<double> mean, squares;
};

struct Table {
    Header header;
    std::vector<Cell> cells; // ordered by task, metric, protocol, arm, budget
    std::map<PlaceKey, MeanMap> keep_maps;
    std::map<PlaceKey, Timeline> timelines;                       // of the first item
    std::map<std::pair<PlaceKey, std::string>, MeanCurve> curves; // by metric
    std::vector<Warning> warnings;  // the recorded warnings, each once
    std::vector<std::string> notes; // remarks on the file
    uint64_t records = 0;

    const Cell *find(const CellKey &key) const;
};

// Reads `path`: a results file, or a folder with results.jsonl. Memory never grows beyond the size
// of the file.
Table load_table(const std::filesystem::path &path, Names &names);

// The results file that `path` names: `path` itself, or results.jsonl in it. Throws Error(input) if
// there is none.
std::filesystem::path results_file(const std::filesystem::path &path);

// The order in which budgets are listed: "full" first, then tokens, ratio and mib, each by size.
bool budget_before(const std::string &a, const std::string &b);

} // namespace keel::ab
