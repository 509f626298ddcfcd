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

// What an experiment's YAML file says, checked as far as that goes without a model.
// docs/reference/experiments.md describes the file.
namespace keel {

enum class AbBudgetUnit { tokens, ratio, mib };

// One entry of `budgets`.
struct AbBudget {
    AbBudgetUnit unit = AbBudgetUnit::tokens;
    double value = 0;
    SourceLocation where;

    std::string label() const; // "tokens:128", as records have it
    std::string key() const;   // "tokens", of policy.budget
    std::string text() const;  // "128"
};

// A change of the base pipeline under a name.
struct AbArmEntry {
    std::string name;
    pipeline::YamlNode overrides;  // keys of a pipeline; null: none
    std::vector<AbBudget> budgets; // its own, in place of the experiment's; empty: those
    SourceLocation where;
};

enum class AbProtocol {
    question_blind, // the context is evicted from before the question is known
    query_aware,    // the question stands at the prompt's end when the policy decides
};
const char *ab_protocol_name(AbProtocol protocol);

enum class AbTaskKind { continuation, passkey, facts, jsonl, speed };
const char *ab_task_kind_name(AbTaskKind kind);

// How a written answer is held against the expected ones.
enum class AbAnswerMetric {
    substring_all, // share of the expected answers that it contains, upper and lower case alike
                   // (RULER)
    substring_any, // 1 if it contains one of them
    exact,         // 1 if it is one of them, but for case, punctuation, articles and spaces
    f1,            // the best F1 over words with one of them (LongBench's QA)
};
const char *ab_answer_metric_name(AbAnswerMetric metric);

// One entry of `tasks`; which members count depends on the kind.
struct AbTask {
    AbTaskKind kind = AbTaskKind::passkey;
    std::string name; // unique; the kind where the file gives none
    SourceLocation where;
    uint64_t seed = 1; // of what is drawn at random to make the items
    int64_t items = 0; // passkey: for each length and depth; facts: documents for each length;
                       // jsonl: lines at most, 0: all
    std::vector<int64_t> lengths; // passkey, facts: tokens of the whole prompt
    int64_t depths = 0;    // passkey: places of the needle, evenly from the beginning to the end
    int64_t questions = 0; // facts: asked of a document at most, 0: all
    std::filesystem::path
        filler; // passkey, facts: text between; empty: heldout.txt in the model's folder
    std::filesystem::path text; // continuation: what is predicted
    int64_t prefix = 0,
            score = 0; // continuation: tokens before the eviction, tokens that are scored behind it
    int64_t documents = 0;                                 // continuation: stretches of the text
    std::filesystem::path path;                            // jsonl
    AbAnswerMetric metric = AbAnswerMetric::substring_all; // jsonl
    std::string prompt;              // jsonl with a context: "{context}...{input}..."
    int64_t max_tokens = 0;          // jsonl: of an answer
    std::vector<int64_t> at;         // speed (`depths`): tokens in the cache when decoding begins
    int64_t repeats = 0, decode = 0; // speed
};

struct AbConfig {
    std::filesystem::path file; // for messages and defaults; empty: from memory
    std::string title;
    std::filesystem::path base; // a pipeline file, absolute
    SourceLocation base_where;
    std::vector<AbArmEntry> arms;
    std::string reference;
    std::vector<AbBudget> budgets;
    std::vector<AbProtocol> protocols;
    std::vector<AbTask> tasks;
    std::vector<uint64_t> seeds;
    // Documents that take decode steps together in every arm. Decides about numbers: products of
    // several rows may round otherwise.
    uint32_t batch = 1;
    AbStatistics statistics;
    std::vector<std::pair<std::string, std::string>> contrasts; // pairs of arms; empty: all
    std::filesystem::path output;                               // absolute
    bool eviction_logs = false;                                 // write one for each arm and budget
    int64_t maps =
        2; // items of each task of which keep maps, cache timelines and curves are recorded

    static constexpr size_t most_arms = 100, most_budgets = 50, most_tasks = 50, most_seeds = 100;
};

// Throws Error(input) "FILE:LINE:COLUMN: ..." for whatever is not as docs/reference/experiments.md
// says; unknown keys among it.
AbConfig load_ab_config(const std::filesystem::path &file);
AbConfig parse_ab_config(std::string_view text, const std::string &name,
                         const std::filesystem::path &folder);

} // namespace keel
