#pragma once

#include "base/location.hpp"
#include "config/yaml_document.hpp"
#include "eval/ab/records/record.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The contents of an experiment's YAML file. load_config() checks everything in the file that can
// be checked without a model. docs/reference/experiments.md describes the file.
namespace keel::ab {

enum class BudgetUnit { tokens, ratio, mib };

// One entry of `budgets`.
struct Budget {
    BudgetUnit unit = BudgetUnit::tokens;
    double value = 0;
    SourceLocation where;

    std::string label() const; // the form in records: "tokens:128"
    std::string key() const;   // the key below policy.budget: "tokens"
    std::string text() const;  // the value: "128"
};

// An arm: a name, and changes of the base pipeline.
struct ArmEntry {
    std::string name;
    pipeline::YamlNode overrides; // keys of a pipeline; null if there are no changes
    // the arm's own budgets; if empty, the arm runs at the budgets of the experiment
    std::vector<Budget> budgets;
    SourceLocation where;
};

// The place in a prompt after which the policy evicts. At this place the policy gets the event "end
// of the prompt". The model reads the rest of the prompt with the evicted cache.
enum class Protocol {
    question_blind, // after the context, before the question
    // After the question. The model reads the opening of the answer after the eviction.
    query_aware,
    // At the end of the prompt. The answer's first token is computed before the eviction.
    whole_prompt,
};
const char *protocol_name(Protocol protocol);

enum class TaskKind { continuation, passkey, facts, jsonl, speed };
const char *task_kind_name(TaskKind kind);

// The method that compares an answer with the expected answers.
enum class AnswerMetric {
    // The share of the expected answers that occur in the answer, ignoring case (RULER).
    substring_all,
    substring_any, // 1 if one of the expected answers occurs in the answer
    // 1 if the answer equals one of the expected answers, ignoring case, punctuation, articles and
    // spaces.
    exact,
    // F1 over the words of the answer and of an expected answer; the best of all expected answers
    // (question answering in LongBench).
    f1,
};
const char *answer_metric_name(AnswerMetric metric);

// The key `chat`: the form of the prompts of tasks with questions.
struct Chat {
    static constexpr std::string_view models_template = "auto", no_template = "none",
                                      no_system = "none";
    // The name of a chat template, or models_template (the template of the model), or no_template
    // (plain text).
    std::string template_name = std::string(models_template);
    std::optional<std::string> system; // nullopt: the template's default system prompt
    SourceLocation where;
};

// One entry of `tasks`. The kind of the task determines which members are used.
struct Task {
    TaskKind kind = TaskKind::passkey;
    std::string name; // unique; the default is the name of the kind
    SourceLocation where;
    uint64_t seed = 1; // random seed of the generated items
    // Task `passkey`: the number of items for each length and depth. Task `facts`: the number of
    // documents for each length. Task `jsonl`: the limit for the number of lines; 0 means all
    // lines.
    int64_t items = 0;
    std::vector<int64_t> lengths; // tasks `passkey` and `facts`: the lengths of the whole prompt,
                                  // in tokens
    // Task `passkey`: the number of places for the fact. The places are spread evenly from the
    // beginning to the end.
    int64_t depths = 0;
    int64_t questions = 0; // task `facts`: the limit for the questions of a document; 0 means all
                           // questions
    // Tasks `passkey` and `facts`: the file with the filler text. An empty path stands for
    // heldout.txt in the model's folder.
    std::filesystem::path filler;
    std::filesystem::path text; // task `continuation`: the file with the text to predict
    // Task `continuation`: the model reads `prefix` tokens before the eviction. The `score` tokens
    // after the eviction are scored.
    int64_t prefix = 0, score = 0;
    int64_t documents = 0;      // task `continuation`: the number of documents that are cut from
                                // the text
    std::filesystem::path path; // jsonl
    AnswerMetric metric = AnswerMetric::substring_all; // task `jsonl`: the metric of the answers
    // Task `jsonl`: a template for lines with a context, for example "{context}...{input}...".
    std::string prompt;
    int64_t max_tokens = 0; // task `jsonl`: the limit for the number of tokens of an answer
    // Task `speed`: the numbers of tokens in the cache when decode starts. The key in the file is
    // `depths`.
    std::vector<int64_t> at;
    // Task `speed`: the number of rounds, and the number of tokens to decode in each round.
    int64_t repeats = 0, decode = 0;
};

// The metrics that a task measures. The first one is the main metric.
std::vector<std::string> task_metrics(const Task &task);

struct Config {
    // the experiment's file, for messages and defaults; empty if there is no file
    std::filesystem::path file;
    std::string title;
    std::filesystem::path base; // absolute path of a pipeline file
    SourceLocation base_where;
    std::vector<ArmEntry> arms;
    std::string reference;
    std::vector<Budget> budgets;
    std::vector<Protocol> protocols;
    Chat chat;
    std::vector<Task> tasks;
    std::vector<uint64_t> seeds;
    // The number of documents that take decode steps together in every arm. `batch` affects the
    // results, because a matmul with several rows can round differently from a matmul with one row.
    uint32_t batch = 1;
    Statistics statistics;
    // The planned contrasts. Empty: each arm except the sweeps is compared with the reference on
    // the primary metric.
    std::vector<PlannedContrast> contrasts;
    std::filesystem::path output; // absolute path of a folder
    bool eviction_logs = false;   // true: write an eviction log for each arm and budget
    // Number of items of each task for which keep maps, cache timelines and curves are recorded.
    int64_t maps = 2;

    static constexpr size_t most_arms = 100, most_budgets = 50, most_tasks = 50, most_seeds = 100;
};

// load_config() reads an experiment's file. Throws Error(input) "FILE:LINE:COLUMN: ..." if the file
// does not have the form in docs/reference/experiments.md, for example if a key is unknown.
Config load_config(const std::filesystem::path &file);
Config parse_config(std::string_view text, const std::string &name,
                    const std::filesystem::path &folder);

} // namespace keel::ab
