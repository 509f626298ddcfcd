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

namespace keel {

// An arm under one budget: what is run on every item.
struct AbRun {
    std::string arm, budget; // as records name them
    pipeline::PipelineConfig config;
    std::vector<uint64_t> seeds;  // one, unless the policy draws at random
    bool is_spread = false;       // its budget is one of a list
    bool keeps_all = true;        // evicts nothing, ever
    bool acts_in_prefill = false; // between the chunks of a prompt
    bool acts_in_decode = false;  // while text is written
    bool is_seeded = false;       // what it keeps depends on the seed
    bool draws_slots = false; // by lot, slot by slot: under one seed the same ones in every prompt
    bool is_rerun = false;    // the reference once more, for the noise floor
};

// An experiment's file with its base pipeline: every arm's pipeline is complete and known to work
// with the model.
struct AbExperiment {
    AbConfig config;
    AbPromptForm form;                    // of the prompts of tasks with questions
    std::vector<AbRun> runs;              // the reference first
    std::vector<std::string> differences; // [arms] how each differs from the base, for people
    std::string hash;                     // 16 hex digits of all that decides about the numbers
    std::string experiment_hash; // the same but for AbResolveOptions::circumstances and libraries
    // The plugins' files that runs use: ("policy snapkv", "snapkv.so" and a hash of its contents),
    // sorted.
    std::vector<std::pair<std::string, std::string>> libraries;
    std::string model_hash; // of the reference's model, sampled
    std::string resolved; // the experiment as YAML with every key and absolute paths; read back it
                          // is the same experiment

    const AbRun &reference() const { return runs.front(); }
};

struct AbResolveOptions {
    std::vector<std::string>
        sets; // of the base pipeline, as --set takes them; arms are merged over them
    std::string circumstances; // what else tells runs apart: version, commit
    std::shared_ptr<HostServices> host;
};

// Reads the base, merges each arm over it, asks the policies what they are and spreads the budgets
// over those that evict. Opens models and plugins, reads no weights. Throws Error(input) with file,
// line and column for what cannot be.
AbExperiment resolve_ab(AbConfig config, const AbResolveOptions &options);

// 16 hex digits of a model's files: names, sizes and samples of their contents.
std::string ab_model_hash(const std::filesystem::path &model);

} // namespace keel
