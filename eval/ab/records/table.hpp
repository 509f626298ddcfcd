#pragma once

#include "eval/ab/records/metric.hpp"
#include "eval/ab/records/record.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

// The records of an experiment in a form for statistics. Seeds are averaged, texts become numbers,
// and maps and curves become means.
namespace keel::ab {

// Gives each text a number. Two tables whose items are paired must use the same Names object.
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
    uint32_t expected = 0; // the expected answer, as a number from Names
};

struct CellKey {
    std::string arm, budget, protocol, task, metric;
    auto operator<=>(const CellKey &) const = default;
};

// All items of an arm at a budget, for one metric of one task.
struct Cell : CellKey {
    Metric kind;
    std::vector<Point> points; // sorted by the number of the item
    // Means over the records of the cell. The peak is the maximum over the records.
    double kv_bytes = 0, full_kv_bytes = 0, own_full_kv_bytes = 0, policy_bytes = 0, kept_slots = 0,
           seen = 0, evictions = 0, eviction_us = 0;
    uint64_t peak_kv_bytes = 0;
    uint64_t records = 0, without_eviction = 0;
    // Records with the same item and seed as an earlier record. Only the first record counts.
    uint64_t repeated = 0, contradicting = 0;
    std::string contradiction; // the name of one item whose records contradict each other
};

using PlaceKey =
    std::tuple<std::string, std::string, std::string, std::string>; // arm, budget, protocol, task

struct MeanMap {
    uint32_t layers = 0, kv_heads = 0;
    uint64_t items = 0;
    // Means over the keep maps of all items, [layers][kv_heads][KeepMap::bin_count].
    std::vector<float> bins;
};

// The tokens of one item's prompt, and the marks of the tokens that each arm kept. Only the first
// items of a task have these data.
struct KeptTokens {
    std::vector<std::string> tokens; // empty: not recorded
    std::map<std::pair<std::string, std::string>, std::string>
        kept; // KeepMap::kept of each arm and budget
};

struct MeanCurve {
    // For each position: the number of items that reach the position, the mean of the items'
    // values, and the sum of the squared distances from this mean.
    std::vector<uint32_t> items;
    std::vector<double> mean, squares;
};

struct Table {
    Header header;
    std::vector<Cell> cells; // in the order of task, metric, protocol, arm, budget
    std::map<PlaceKey, MeanMap> keep_maps;
    std::map<std::array<std::string, 3>, KeptTokens> kept_tokens; // by protocol, task and item
    std::map<PlaceKey, Timeline> timelines;                       // the timeline of the first item
    // the text of the key is the metric
    std::map<std::pair<PlaceKey, std::string>, MeanCurve> curves;
    std::vector<Warning> warnings;  // the recorded warnings, without repetitions
    std::vector<std::string> notes; // remarks about the file
    uint64_t records = 0;

    const Cell *find(const CellKey &key) const;
};

// Reads `path`: a results file, or a folder with results.jsonl. The table never needs more memory
// than the file has bytes.
Table load_table(const std::filesystem::path &path, Names &names);

// Returns the results file: `path` itself, or results.jsonl in the folder `path`. Throws
// Error(input) if the file does not exist.
std::filesystem::path results_file(const std::filesystem::path &path);

// The order in which budgets are listed: first "full", then tokens, ratio and mib, each in rising
// order.
bool budget_before(const std::string &a, const std::string &b);

} // namespace keel::ab
