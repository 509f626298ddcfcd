#pragma once

#include "config/config.hpp"
#include "eval/ab/plan/config.hpp"
#include "eval/ab/tasks/prompt_form.hpp"
#include "plugin/host.hpp"

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace keel::ab {

// One arm at one budget. A run processes every item.
struct Run {
    std::string arm, budget; // the names in the records, for example "tokens:128"
    pipeline::PipelineConfig config;
    std::vector<uint64_t> seeds;  // one seed; several only if the policy draws random numbers
    bool is_spread = false;       // the budget comes from a list of budgets
    bool keeps_all = true;        // the policy never evicts
    bool acts_in_prefill = false; // evicts between the chunks of a prompt
    bool acts_in_decode = false;  // evicts during decode
    bool is_seeded = false;       // the policy's seed affects which slots are kept
    // The policy draws single slots at random. With the same seed, the policy would draw the same
    // slots for every prompt.
    bool draws_slots = false;
    bool is_rerun = false; // this is the reference's second run, for the noise floor
};

// An experiment's file together with its base pipeline. The pipeline of every arm is complete and
// checked with the model.
struct Experiment {
    Config config;
    PromptForm form;       // form of the prompts of tasks with questions
    std::vector<Run> runs; // the first run is the reference
    // [arms] The differences of each arm from the base pipeline, as text for readers.
    std::vector<std::string> differences;
    std::string hash; // 16 hex digits; hash of everything that affects the numbers
    // A hash like `hash`, but without ResolveOptions::circumstances and without `libraries`.
    std::string experiment_hash;
    // The plugin files that the runs use, sorted. Each entry has a name ("policy snapkv") and the
    // file name with a hash of the contents ("snapkv.so ...").
    std::vector<std::pair<std::string, std::string>> libraries;
    std::string model_hash; // hash of the reference's model, from samples of its files
    // The experiment as YAML, with every key and with absolute paths. Reading this YAML gives the
    // same experiment again.
    std::string resolved;

    const Run &reference() const { return runs.front(); }
};

struct ResolveOptions {
    // Changes of the base pipeline, in the form of --set. The changes of the arms are applied
    // afterwards.
    std::vector<std::string> sets;
    std::string circumstances; // version and commit of the program; part of Experiment::hash
    std::shared_ptr<HostServices> host;
};

// Completes an experiment. Reads the base pipeline and applies the changes of each arm to the base.
// Asks each policy for the policy's properties. Gives each budget to every arm that evicts. Opens
// models and plugins, but reads no weights. Throws Error(input) with file, line and column if the
// experiment is invalid.
Experiment resolve_experiment(Config config, const ResolveOptions &options);

// Hash (16 hex digits) of a model's files: of the names, the sizes, and samples of the contents.
std::string hash_of_model(const std::filesystem::path &model);

} // namespace keel::ab
