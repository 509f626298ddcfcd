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

// One arm at one budget. It runs on every item.
struct Run {
    std::string arm, budget; // as in the records
    pipeline::PipelineConfig config;
    std::vector<uint64_t> seeds;  // one, unless the policy draws random numbers
    bool is_spread = false;       // the budget is one of a list
    bool keeps_all = true;        // never evicts
    bool acts_in_prefill = false; // evicts between the chunks of a prompt
    bool acts_in_decode = false;  // evicts while the answer is written
    bool is_seeded = false;       // the seed decides which slots are kept
    // Each slot is drawn at random. With the same seed, every prompt would get the same draws.
    bool draws_slots = false;
    bool is_rerun = false; // the reference's second run, for the noise floor
};

// An experiment's file together with its base pipeline. Every arm's pipeline is complete, and was
// checked against the model.
struct Experiment {
    Config config;
    PromptForm form;       // form of the prompts of tasks with questions
    std::vector<Run> runs; // the reference is the first
    // [arms] The differences of each arm from the base, as text for people.
    std::vector<std::string> differences;
    std::string hash; // 16 hex digits, over everything that decides the numbers
    // As `hash`, but without ResolveOptions::circumstances and libraries.
    std::string experiment_hash;
    // The plugin files that the runs use, sorted. Each has a name ("policy snapkv") and its file
    // name with a hash of the contents ("snapkv.so ...").
    std::vector<std::pair<std::string, std::string>> libraries;
    std::string model_hash; // of the reference's model; from samples of its files
    // The experiment as YAML, with every key and with absolute paths. Reading it gives the same
    // experiment.
    std::string resolved;

    const Run &reference() const { return runs.front(); }
};

struct ResolveOptions {
    // Changes of the base pipeline, as --set takes them. The arms are merged over the changed base.
    std::vector<std::string> sets;
    std::string circumstances; // version and commit of the program; a part of `hash`
    std::shared_ptr<HostServices> host;
};

// Reads the base, merges each arm over it, asks each policy for its properties, and gives each
// budget to every arm that evicts. Opens models and plugins, but reads no weights. Throws
// Error(input) with file, line and column for an invalid experiment.
Experiment resolve_experiment(Config config, const ResolveOptions &options);

// 16 hex digits over a model's files: their names, sizes and samples of their contents.
std::string hash_of_model(const std::filesystem::path &model);

} // namespace keel::ab
