#pragma once

#include "eval/ab/records/margin.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// The records of an experiment: results.jsonl, with one JSON object on each line. The first line is
// the header. Every other line has a "kind": "item", "keep_map", "timeline", "curve" or "warning".
// docs/reference/experiments.md lists the keys.
namespace keel::ab {

// How an experiment is judged. This is declared before the run, so nobody can choose it by the
// outcome.
struct Statistics {
    double confidence = 0.95;   // of intervals, and for Holm's adjustment
    uint64_t resamples = 10000; // number of resamples of each bootstrap
    uint64_t seed = 1;          // seed of the bootstrap
    // "task/metric". In older results it may be the name of a task, for all its metrics. Empty: the
    // first quality metric of the results.
    std::string primary;
    Margins margins; // the declared margins; margin_of() adds the defaults
};

// A contrast that was declared before the run: arm a against arm b at equal budgets.
struct PlannedContrast {
    std::string a, b;
    std::string on; // "task/metric"; empty: the primary metric
    bool operator==(const PlannedContrast &) const = default;
};

struct Arm {
    std::string name;
    std::string text; // the differences from the base pipeline, as text
};

// The first line of a results file.
struct Header {
    // Hash over everything that decides the numbers. It is equal in all shards of an experiment.
    std::string config_hash;
    // The same hash without the program's version. Empty in results of older programs.
    std::string experiment_hash;
    std::string version, commit, date;
    // For each plugin its name, and its file name with a hash. Empty in results of older programs.
    std::vector<std::pair<std::string, std::string>> libraries;
    std::string model;   // name and hash of the model
    std::string machine; // processor, cores, memory
    std::string title;
    std::string reference; // the arm with which the others are compared
    std::vector<Arm> arms;
    // Empty: each arm but the sweeps, against the reference, on the primary metric.
    std::vector<PlannedContrast> contrasts;
    // Arms that run at several budgets of their own, to draw a curve.
    std::vector<std::string> sweeps;
    // Arm and budget of each cell that reads every prompt itself. All other cells share prefills.
    std::vector<std::pair<std::string, std::string>> own_prefills;
    Statistics statistics;
    // Of results from before each metric had its own margin: that of all metrics. It is not used.
    // Their "query_aware" is called "whole_prompt" now, and read as that. Never written.
    std::optional<double> old_margin;
    uint32_t shard = 1, shards = 1; // this file holds shard `shard` of `shards`
    // The most documents of each task, from the last run that wrote this file. 0: all.
    uint64_t items = 0;
    uint32_t batch = 1; // documents that take decode steps together
    // Other facts for a reader, in order: threads, dtypes, positions mode, tokenizer, ABI version
    // ...
    std::vector<std::pair<std::string, std::string>> facts;
};

// Suffix of the arm that runs the reference again to find the noise floor: "full#again".
inline constexpr std::string_view rerun_suffix = "#again";

// The place of a record in the experiment.
struct Place {
    std::string arm;
    std::string budget = "full"; // "full" | "tokens:128" | "ratio:0.25" | "mib:8"
    // "question_blind" | "query_aware" | "whole_prompt"; "" without a question
    std::string protocol;
    std::string task;
    uint64_t seed = 0;
};

// One number of one item. Arms are paired by (protocol, task, metric, item), so `item` must name
// the same content in every arm and under every seed. The numbers of several seeds are averaged
// before arms are compared.
struct Item : Place {
    std::string metric; // "hit", "top1", "nll", "kld", "ttft_ms", "decode_ms_p99" ...
    // The cluster. Items of one document are not independent. Empty: the item is a cluster of its
    // own.
    std::string document;
    std::string item;   // unique within the task
    double value = 0;   // finite
    int64_t length = 0; // tokens of the prompt
    double depth = -1;  // of the needle, 0 to 1; below 0: no needle
    // kv_bytes: cache plus policy_bytes while the item was scored. full_kv_bytes: the bytes that
    // the reference's cache would hold. own_full_kv_bytes: the bytes that the arm's cache would
    // hold without evictions; 0: the same as full_kv_bytes. peak_kv_bytes: the peak of cache plus
    // policy.
    uint64_t kv_bytes = 0, full_kv_bytes = 0, own_full_kv_bytes = 0, peak_kv_bytes = 0;
    uint64_t policy_bytes = 0; // bytes that the core holds for the policy, besides the cache
    double kept_slots = 0;     // mean over layers and heads
    uint64_t seen = 0;         // tokens that the session took in
    uint64_t evictions = 0;
    double eviction_us = 0; // microseconds of all evictions together
    std::string answer, expected;
};

// The positions of a prompt that a policy kept. For each layer and head: the share of kept
// positions in each of 64 equal stretches of the prompt.
struct KeepMap : Place {
    static constexpr uint32_t bin_count = 64;
    std::string item;
    uint32_t layers = 0, kv_heads = 0;
    std::vector<float> bins; // [layers][kv_heads][bin_count], 0 to 1; written with 3 decimals
};

// The size of the cache while tokens were taken in.
struct Timeline : Place {
    std::string item;
    // Each point: tokens so far, KV bytes, slots evicted since the point before.
    std::vector<std::array<uint64_t, 3>> points;
};

// A metric by the number of tokens since the eviction: values[i] is for token i after it.
struct Curve : Place {
    std::string metric, item;
    std::vector<double> values; // finite
};

// A warning for readers of the verdicts. An empty name means that the warning is about all arms,
// budgets, protocols or tasks.
struct Warning {
    std::string arm, budget, protocol, task;
    std::string text;
};

using Record = std::variant<Item, KeepMap, Timeline, Curve, Warning>;

// Bounds on everything that is read and written.
inline constexpr size_t most_line_bytes = size_t{4} << 20;
inline constexpr size_t longest_name = 200; // bytes of the name of an arm, a task, an item ...
// Bytes of an answer or a warning. Longer texts are cut when they are written.
inline constexpr size_t longest_text = 4000;
inline constexpr uint64_t most_records = 20'000'000;

// Appends records, each on a line of its own. write() returns after the system has the line, so a
// killed run loses at most half a line. Thread-safe.
class Writer {
  public:
    enum class Mode {
        create, // the file must not exist
        // Continues an existing file. Its config_hash and shard must be equal. Half of a last line
        // is cut off. If the headers differ otherwise (statistics, contrasts, title), the new
        // header replaces the old one. Creates the file if it does not exist.
        resume,
    };
    // Throws Error(input) if the file exists and does not fit, Error(runtime) if the system
    // refuses.
    Writer(const std::filesystem::path &path, const Header &header, Mode mode);
    ~Writer();
    Writer(const Writer &) = delete;
    Writer &operator=(const Writer &) = delete;

    // Throws Error(usage) for names that are too long and for wrong shapes. Throws Error(runtime)
    // for numbers that are not finite or out of range, and if the system refuses, for example when
    // the disk is full.
    void write(const Record &record);

  private:
    struct Close {
        void operator()(std::FILE *file) const noexcept;
    };
    std::filesystem::path path_;
    std::unique_ptr<std::FILE, Close> file_;
    std::mutex mutex_;
};

struct ReadResult {
    Header header;
    uint64_t records = 0;
    uint64_t bytes = 0;        // up to the end of the last complete line
    bool dropped_tail = false; // the last line had no end and was left out
};

// Reads a results file line by line. `take` gets each record with its line number; the header is
// line 1. Memory does not grow with the file. Throws Error(input) "file:line: ...". A last line
// without a line end is left out, whatever it contains.
ReadResult read_records(const std::filesystem::path &path,
                        const std::function<void(Record &&, uint64_t line)> &take);

// Reads only the header.
Header read_header(const std::filesystem::path &path);

// Throws Error(input) if the results in `path`, whose header is `there`, are of another experiment
// than `wanted`. The message says how they differ.
void require_same_experiment(const std::filesystem::path &path, const Header &there,
                             const Header &wanted);

// A plugin whose files differ between two experiments: "policy snapkv (snapkv.so)". Empty: no such
// plugin is known.
std::string other_library(const Header &a, const Header &b);

// The lines as in the file, without line ends.
std::string header_line(const Header &header);
std::string record_line(const Record &record);

} // namespace keel::ab
