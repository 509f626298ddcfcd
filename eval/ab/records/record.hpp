#pragma once

#include "eval/ab/records/margin.hpp"
#include "eval/ab/records/plan_record.hpp"

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
// the header. Every line after the header has a "kind": "item", "keep_map", "prompt", "timeline",
// "curve" or "warning". docs/reference/experiments.md lists the keys.
namespace keel::ab {

// The rule for looks at the results before all planned items are done.
enum class Looks {
    none, // one test, when all planned items are done
    // Alpha spending of the O'Brien-Fleming type; see eval/stats/group_sequential.hpp.
    obrien_fleming,
};
inline const char *looks_name(Looks looks) {
    return looks == Looks::none ? "none" : "obrien_fleming";
}

// The statistics of an experiment. The experiment's file declares the statistics before the run, so
// that the result cannot influence the choice.
struct Statistics {
    double confidence = 0.95;   // confidence of the intervals, and for Holm's adjustment
    uint64_t resamples = 10000; // number of resamples of each bootstrap
    uint64_t seed = 1;          // seed of the bootstrap
    // The primary metric as "task/metric". In older results the text can be the name of a task,
    // which stands for all metrics of the task. Empty: the first quality metric of the results.
    std::string primary;
    Margins margins; // the declared margins; margin_of() gives the default for each metric without
                     // a declared margin
    Looks looks = Looks::none;
};

// A contrast that is declared before the run: arm a is compared with arm b at equal budgets.
struct PlannedContrast {
    std::string a, b;
    std::string on; // "task/metric"; empty: the primary metric
    bool operator==(const PlannedContrast &) const = default;
};

struct Arm {
    std::string name;
    std::string text; // the differences from the base pipeline, for readers
};

// The first line of a results file.
struct Header {
    // Hash of everything that affects the numbers. All shards of an experiment have the same hash.
    std::string config_hash;
    // A hash like config_hash, but without the version of the program. Empty in results of older
    // programs.
    std::string experiment_hash;
    std::string version, commit, date;
    // For each plugin: its name, and its file name with a hash of the file. Empty in results of
    // older programs.
    std::vector<std::pair<std::string, std::string>> libraries;
    std::string model;   // name and hash of the model
    std::string machine; // processor, cores, memory
    std::string title;
    std::string reference; // the arm with which all other arms are compared
    std::vector<Arm> arms;
    // Empty: each arm except the sweeps is compared with the reference on the primary metric.
    std::vector<PlannedContrast> contrasts;
    // Arms that run at several budgets of their own, for a curve.
    std::vector<std::string> sweeps;
    // Arm and budget of each cell that has its own prefill for every prompt. Cells that are not in
    // this list share prefills.
    std::vector<std::pair<std::string, std::string>> own_prefills;
    Statistics statistics;
    // The one margin of all metrics, in older results. Newer results have a margin for each metric.
    // Keel reads old_margin, but neither uses nor writes it. In results with old_margin, the
    // protocol "whole_prompt" has the name "query_aware".
    std::optional<double> old_margin;
    uint32_t shard = 1, shards = 1; // the file has the items of shard `shard` of `shards` shards
    uint32_t missing_shards = 0;    // merged results: shards that were not merged
    // The command that wrote this file, without its shard. Empty in results of older programs.
    std::string command;
    std::optional<PlanRecord> plan; // the frozen plan; nullopt: the experiment has no plan
    // The value of --items in the last run that wrote this file. --items limits the documents of
    // each task. 0: no limit.
    uint64_t items = 0;
    uint32_t batch = 1; // number of documents that take decode steps together
    // Further facts for readers, in this order: threads, dtypes, positions mode, tokenizer, ABI
    // version, and more.
    std::vector<std::pair<std::string, std::string>> facts;
};

// Suffix of the arm that runs the reference a second time to measure the noise floor: "full#again".
inline constexpr std::string_view rerun_suffix = "#again";

// The arm, budget, protocol, task and seed to which a record belongs.
struct Place {
    std::string arm;
    std::string budget = "full"; // "full" | "tokens:128" | "ratio:0.25" | "mib:8"
    // "question_blind" | "query_aware" | "whole_prompt"; "" for a task without questions
    std::string protocol;
    std::string task;
    uint64_t seed = 0;
};

// One number of one item. Arms are paired by (protocol, task, metric, item). So an item's name must
// mean the same content in every arm and with every seed. The numbers of all seeds of an arm are
// averaged before arms are compared.
struct Item : Place {
    std::string metric; // "hit", "top1", "nll", "kld", "ttft_ms", "decode_ms_p99" ...
    // The cluster of the item. Items of one document are not independent. An empty text means that
    // the item is the only item of its cluster.
    std::string document;
    std::string item;   // name of the item, unique within the task
    double value = 0;   // a finite number
    int64_t length = 0; // number of tokens of the prompt
    double depth = -1;  // place of the asked fact in the prompt, 0 to 1; below 0: no such fact
    // kv_bytes: bytes of the cache and of the policy's data while the item was scored.
    // full_kv_bytes: bytes of the reference's cache for the same number of tokens.
    // own_full_kv_bytes: bytes that the arm's cache would have if the arm evicted nothing; 0 if
    // this number is equal to full_kv_bytes. peak_kv_bytes: peak of the bytes of the cache and of
    // the policy's data.
    uint64_t kv_bytes = 0, full_kv_bytes = 0, own_full_kv_bytes = 0, peak_kv_bytes = 0;
    uint64_t policy_bytes = 0; // bytes that the core holds for the policy, outside the cache
    double kept_slots = 0;     // slots in the cache, mean over layers and heads
    uint64_t seen = 0;         // number of tokens that the session has read
    uint64_t evictions = 0;
    double eviction_us = 0; // duration of all evictions together, in microseconds
    std::string answer, expected;
};

// The positions of a prompt that a policy kept. The prompt is divided into 64 equal parts. For each
// layer, KV head and part, the map has the share of positions that were kept.
struct KeepMap : Place {
    static constexpr uint32_t bin_count = 64;
    std::string item;
    uint32_t layers = 0, kv_heads = 0;
    std::vector<float> bins; // [layers][kv_heads][bin_count], 0 to 1; written with 3 decimals
    // For each of the prompt's first most_prompt_tokens tokens: the share of all heads of all
    // layers that kept the token, as a character of page_shade(). Empty in results of older
    // programs.
    std::string kept;
};

// The tokens of a prompt before the eviction, as text. The run of the reference writes this record
// for each document that has keep maps. Results of older programs do not have this record.
struct Prompt : Place {
    std::string item;
    std::vector<std::string>
        tokens; // the first most_prompt_tokens; together below most_prompt_text
};

// The size of the cache while the model read tokens.
struct Timeline : Place {
    std::string item;
    // Each point: number of tokens read, KV bytes, slots evicted since the previous point.
    std::vector<std::array<uint64_t, 3>> points;
};

// The values of a metric at each token after the eviction. values[i] is the value at token i.
struct Curve : Place {
    std::string metric, item;
    std::vector<double> values; // finite numbers
};

// A warning for readers of the verdicts. If the arm, budget, protocol or task is empty, the warning
// is about all arms, budgets, protocols or tasks.
struct Warning {
    std::string arm, budget, protocol, task;
    std::string text;
};

using Record = std::variant<Item, KeepMap, Timeline, Curve, Warning, Prompt>;

// Limits for everything that is read and written.
inline constexpr size_t most_line_bytes = size_t{4} << 20;
inline constexpr size_t longest_name = 200; // limit for the bytes of a name (arm, task, item)
// Limit for the bytes of an answer or a warning. Longer texts are cut when they are written.
inline constexpr size_t longest_text = 4000;
inline constexpr uint64_t most_records = 20'000'000;
inline constexpr size_t most_prompt_tokens = 16384;
// Limit for the bytes of all tokens of a prompt together. Tokens beyond this limit are left out.
inline constexpr size_t most_prompt_text = size_t{256} << 10;

// Appends records to a results file, each on a line of its own. write() returns after the operating
// system has received the line, so a killed run loses at most one incomplete line. Thread-safe.
class Writer {
  public:
    enum class Mode {
        create, // creates the file, which must not exist
        // Continues an existing file, whose config_hash and shard must be equal. Removes an
        // incomplete last line. If the headers differ in `statistics`, `contrasts` or `title`, the
        // new header replaces the old header. Creates the file if it does not exist.
        resume,
    };
    // Throws Error(input) if the file exists and must not be continued. Throws Error(runtime) for
    // errors of the system.
    Writer(const std::filesystem::path &path, const Header &header, Mode mode);
    ~Writer();
    Writer(const Writer &) = delete;
    Writer &operator=(const Writer &) = delete;

    // Throws Error(usage) for names that are too long and for wrong shapes. Throws Error(runtime)
    // for numbers that are not finite or out of range. Also throws Error(runtime) for errors of the
    // system, for example if the disk is full.
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
    uint64_t bytes = 0;        // position after the last complete line
    bool dropped_tail = false; // the last line had no line end and was ignored
};

// Reads a results file line by line. `take` gets each record with the number of its line; the
// header is line 1. The function needs the same memory for files of any size. Ignores a last line
// without a line end. Throws Error(input) "file:line: ...".
ReadResult read_records(const std::filesystem::path &path,
                        const std::function<void(Record &&, uint64_t line)> &take);

// Reads only the header of a results file.
Header read_header(const std::filesystem::path &path);

// Throws Error(input) if the results in `path` do not belong to the experiment `wanted`. `there` is
// the header of `path`. The message describes the difference.
void require_same_experiment(const std::filesystem::path &path, const Header &there,
                             const Header &wanted);

// Returns the name of a plugin whose file differs between two experiments, for example "policy
// snapkv (snapkv.so)". Empty if no plugin is known to differ.
std::string other_library(const Header &a, const Header &b);

// Return the header and a record as lines of the results file, without line ends.
std::string header_line(const Header &header);
std::string record_line(const Record &record);

} // namespace keel::ab
