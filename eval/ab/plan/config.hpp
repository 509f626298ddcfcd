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

// An experiment's YAML file, checked as far as is possible without a model.
// docs/reference/experiments.md describes the file.
namespace keel::ab {

enum class BudgetUnit { tokens, ratio, mib };

// One entry of `budgets`.
struct Budget {
    BudgetUnit unit = BudgetUnit::tokens;
    double value = 0;
    SourceLocation where;

    std::string label() const; // "tokens:128", as in records
    std::string key() const;   // "tokens": the key below policy.budget
    std::string text() const;  // "128"
};

// A named change of the base pipeline.
struct ArmEntry {
    std::string name;
    pipeline::YamlNode overrides; // keys of a pipeline; null: no change
    std::vector<Budget> budgets;  // the arm's own budgets; empty: the experiment's
    SourceLocation where;
};

// The place in a prompt at which the policy is told that the prompt has ended. The tokens after
// this place are read on the evicted cache.
enum class Protocol {
    question_blind, // after the context
    // After the question. The opening of the answer is read after the eviction.
    query_aware,
    // At the end of the prompt. The answer's first token is computed with the whole cache.
    whole_prompt,
};
const char *protocol_name(Protocol protocol);

enum class TaskKind { continuation, passkey, facts, jsonl, speed };
const char *task_kind_name(TaskKind kind);

// How an answer is compared with the expected answers.
enum class AnswerMetric {
    // Share of the expected answers that the answer contains, ignoring case (RULER).
    substring_all,
    substring_any, // 1 if it contains one of the expected answers
    // 1 if it equals one of the expected answers, ignoring case, punctuation, articles and spaces.
    exact,
    // The highest F1 over words of the answer and an expected answer (LongBench's QA).
    f1,
};
const char *answer_metric_name(AnswerMetric metric);

// `chat`: the form of the prompts of tasks with questions.
struct Chat {
    static constexpr std::string_view models_template = "auto", no_template = "none",
                                      no_system = "none";
    // The name of a template, or models_template.
    std::string template_name = std::string(models_template);
    std::optional<std::string> system; // nullopt: the template's own default
    SourceLocation where;
};

// One entry of `tasks`. The kind decides which members are used.
struct Task {
    TaskKind kind = TaskKind::passkey;
    std::string name; // unique; default: the kind
    SourceLocation where;
    uint64_t seed = 1; // seed of the random items
    // passkey: items for each length and depth. facts: documents for each length. jsonl: the most
    // lines, 0: all.
    int64_t items = 0;
    std::vector<int64_t> lengths; // passkey, facts: tokens of the whole prompt
    // passkey: number of places of the needle, spread evenly from the beginning to the end.
    int64_t depths = 0;
    int64_t questions = 0; // facts: the most questions for a document, 0: all
    // Passkey, facts: the file of the filler text. Empty: heldout.txt in the model's folder.
    std::filesystem::path filler;
    std::filesystem::path text; // continuation: the text that is predicted
    // continuation: `prefix` tokens are read before the eviction, `score` tokens are scored after
    // it.
    int64_t prefix = 0, score = 0;
    int64_t documents = 0;                             // continuation: stretches of the text
    std::filesystem::path path;                        // jsonl
    AnswerMetric metric = AnswerMetric::substring_all; // jsonl
    // Jsonl lines with a context: "{context}...{input}...".
    std::string prompt;
    int64_t max_tokens = 0;  // jsonl: the most tokens of an answer
    std::vector<int64_t> at; // speed (`depths`): tokens in the cache at the start of decoding
    int64_t repeats = 0, decode = 0; // speed
};

// The metrics that a task measures. The first is its main metric.
std::vector<std::string> task_metrics(const Task &task);

struct Config {
    std::filesystem::path file; // for messages and defaults; empty: read from memory
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
    // The number of documents that take decode steps together in every arm. It changes the results,
    // because a matmul of several rows may round differently.
    uint32_t batch = 1;
    Statistics statistics;
    // The planned contrasts. Empty: each arm but the sweeps, against the reference, on the primary
    // metric.
    std::vector<PlannedContrast> contrasts;
    std::filesystem::path output; // absolute path of a folder
    bool eviction_logs = false;   // write a log for each arm and budget
    // Items of each task for which keep maps, cache timelines and curves are recorded.
    int64_t maps = 2;

    static constexpr size_t most_arms = 100, most_budgets = 50, most_tasks = 50, most_seeds = 100;
};

// Throws Error(input) "FILE:LINE:COLUMN: ..." for a file that does not have the form of
// docs/reference/experiments.md, for example for an unknown key.
Config load_config(const std::filesystem::path &file);
Config parse_config(std::string_view text, const std::string &name,
                    const std::filesystem::path &folder);

} // namespace keel::ab
