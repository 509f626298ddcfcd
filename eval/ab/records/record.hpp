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

// The records of an experiment: results.jsonl, one JSON object a line. The first line is the
// header, every other one has a "kind": "item", "keep_map", "timeline", "curve" or "warning".
// docs/reference/experiments.md lists the keys.
namespace keel {

// How an experiment is judged. It is declared before the run, so that it cannot be chosen by the
// outcome.
struct AbStatistics {
    double confidence = 0.95;   // of intervals and of Holm's level
    uint64_t resamples = 10000; // of each bootstrap
    uint64_t seed = 1;          // of the bootstrap
    // "task/metric", or a task's name for all its metrics (older results); empty: the first quality
    // metric of the results.
    std::string primary;
    AbMargins margins; // the declared ones; ab_margin_of() has defaults
};

// A contrast that was declared before the run: arms at equal budgets, a against b.
struct AbPlannedContrast {
    std::string a, b;
    std::string on; // "task/metric"; empty: the primary metric
    bool operator==(const AbPlannedContrast &) const = default;
};

struct AbArm {
    std::string name;
    std::string text; // how it differs from the base pipeline, for people
};

// The first line of a results file.
struct AbHeader {
    std::string
        config_hash; // of all that decides about the numbers; equal in all shards of an experiment
    std::string experiment_hash; // the same but for the program that ran it; empty: written by one
                                 // that did not note it
    std::string version, commit, date;
    // Plugins' names, and the name and hash of their files; empty: written by a program that did
    // not note them.
    std::vector<std::pair<std::string, std::string>> libraries;
    std::string model;   // name and hash
    std::string machine; // processor, cores, memory
    std::string title;
    std::string reference; // the arm that others are compared with
    std::vector<AbArm> arms;
    // Empty: each arm, but sweeps, against the reference on the primary metric.
    std::vector<AbPlannedContrast> contrasts;
    std::vector<std::string>
        sweeps; // arms that run under several budgets of their own, to draw a curve
    // Arm and budget of each cell that reads every prompt itself. The others share prefills.
    std::vector<std::pair<std::string, std::string>> own_prefills;
    AbStatistics statistics;
    // Of results from before each metric had its own margin: that of all metrics. It is not used.
    // Their "query_aware" is called "whole_prompt" now, and read as that. Never written.
    std::optional<double> old_margin;
    uint32_t shard = 1, shards = 1; // this file holds shard `shard` of `shards`
    uint64_t items = 0; // documents of each task at most, of the run that wrote it last; 0: all
    uint32_t batch = 1; // documents that took steps together
    // Whatever else a reader should know, in order: threads, dtypes, positions mode, tokenizer, ABI
    // version ...
    std::vector<std::pair<std::string, std::string>> facts;
};

// The reference, run once more to find the noise floor, is an arm of this name: "full#again".
inline constexpr std::string_view ab_rerun_suffix = "#again";

// Where in the experiment a record belongs.
struct AbPlace {
    std::string arm;
    std::string budget = "full"; // "full" | "tokens:128" | "ratio:0.25" | "mib:8"
    std::string protocol;        // "question_blind" | "query_aware" | "" where there is no question
    std::string task;
    uint64_t seed = 0;
};

// One number of one item. Arms are paired by (protocol, task, metric, item), so `item` must name
// the same content in every arm and under every seed. Numbers of several seeds are averaged first.
struct AbItem : AbPlace {
    std::string metric; // "hit", "top1", "nll", "kld", "decode_tokens_per_second", "ttft_ms",
                        // "decode_ms_p99" ...
    std::string
        document; // items of one document share its luck: the cluster; empty: the item is its own
    std::string item;   // unique within the task
    double value = 0;   // finite
    int64_t length = 0; // tokens of the prompt
    double depth = -1;  // of the needle, 0 to 1; below 0: none
    // kv_bytes: cache plus policy_bytes while the item was scored. full_kv_bytes: what the
    // reference's cache would hold. own_full_kv_bytes: what the arm's cache would hold without
    // evictions; 0: the same as full_kv_bytes. peak_kv_bytes: the peak of cache plus policy.
    uint64_t kv_bytes = 0, full_kv_bytes = 0, own_full_kv_bytes = 0, peak_kv_bytes = 0;
    uint64_t policy_bytes = 0; // that the policy makes the core hold beside the cache
    double kept_slots = 0;     // mean over layers and heads
    uint64_t seen = 0;         // tokens that went in
    uint64_t evictions = 0;
    double eviction_us = 0; // all of them together
    std::string answer, expected;
};

// Which positions of a prompt a policy kept: for each layer and head the share kept in each of 64
// equal stretches of the prompt.
struct AbKeepMap : AbPlace {
    static constexpr uint32_t bin_count = 64;
    std::string item;
    uint32_t layers = 0, kv_heads = 0;
    std::vector<float> bins; // [layers][kv_heads][bin_count], 0 to 1; stored to three decimals
};

// The cache's size while tokens went in.
struct AbTimeline : AbPlace {
    std::string item;
    std::vector<std::array<uint64_t, 3>> points; // tokens so far, KV bytes, slots evicted just then
};

// A metric by the position since the eviction: values[i] of the i-th token behind it.
struct AbCurve : AbPlace {
    std::string metric, item;
    std::vector<double> values; // finite
};

// Something that a reader of the verdicts has to know. Names may be empty: then it is about all of
// them.
struct AbWarning {
    std::string arm, budget, protocol, task;
    std::string text;
};

using AbRecord = std::variant<AbItem, AbKeepMap, AbTimeline, AbCurve, AbWarning>;

// Bounds of what is read, and of what is written.
inline constexpr size_t ab_longest_line = size_t{4} << 20;
inline constexpr size_t ab_longest_name = 200; // bytes of an arm, a task, an item ...
inline constexpr size_t ab_longest_text =
    4000; // bytes of an answer, a warning; longer ones are cut when written
inline constexpr uint64_t ab_most_records = 20'000'000;

// Appends records, each on its own line and handed to the system before write() returns, so that a
// killed run loses half a line at most. Thread-safe.
class AbWriter {
  public:
    enum class Mode {
        create, // the file must not be there
        resume, // goes on behind what is there, whose config_hash and shard must be equal; half a
                // last line is cut off, the header is replaced where it differs otherwise
                // (statistics, contrasts, title).
        // A file that is not there is created.
    };
    // Throws Error(input) for a file that is there and does not fit, Error(runtime) where the
    // system refuses.
    AbWriter(const std::filesystem::path &path, const AbHeader &header, Mode mode);
    ~AbWriter();
    AbWriter(const AbWriter &) = delete;
    AbWriter &operator=(const AbWriter &) = delete;

    // Throws Error(usage) for names over their bound and shapes that do not fit; Error(runtime) for
    // numbers that are not finite or out of their range, and where the system refuses (disk full).
    void write(const AbRecord &record);

  private:
    struct Close {
        void operator()(std::FILE *file) const noexcept;
    };
    std::filesystem::path path_;
    std::unique_ptr<std::FILE, Close> file_;
    std::mutex mutex_;
};

struct AbReadResult {
    AbHeader header;
    uint64_t records = 0;
    uint64_t bytes = 0;        // up to the end of the last whole line
    bool dropped_tail = false; // the last line was half-written and left out
};

// Reads a results file line by line; `take` gets each record and its line number (the header is
// line 1). Memory does not grow with the file. Throws Error(input) "file:line: what is wrong". A
// last line without its end is dropped, whatever is in it.
AbReadResult read_ab_records(const std::filesystem::path &path,
                             const std::function<void(AbRecord &&, uint64_t line)> &take);

// The header alone.
AbHeader read_ab_header(const std::filesystem::path &path);

// Throws Error(input) where the results in `path`, whose header is `there`, are of another
// experiment than `wanted`, saying what differs.
void require_same_experiment(const std::filesystem::path &path, const AbHeader &there,
                             const AbHeader &wanted);

// A plugin of which two experiments have different files: "policy snapkv (snapkv.so)"; empty: none
// is known.
std::string ab_other_library(const AbHeader &a, const AbHeader &b);

// Lines as they stand in the file, without their ends.
std::string ab_header_line(const AbHeader &header);
std::string ab_record_line(const AbRecord &record);

} // namespace keel
