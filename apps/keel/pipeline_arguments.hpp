#pragma once

#include "program.hpp"

#include "config/target.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace keel::cli {

// The short forms of --set that a command accepts, for example --backend for backend.plugin. A
// command accepts only the forms that change its behaviour.
enum class ShortForms {
    none,
    pipeline, // --backend, --weights and all further forms that affect how the pipeline computes
    requests, // the forms of `pipeline`, and --temperature and all further forms that are
              // defaults of requests
    all,      // the forms of `pipeline`, and -n, --temperature and all further forms that affect
              // the generated text
};

// The argument TARGET, --set, and the short forms of --set. All commands that run a pipeline use
// this class.
class PipelineArguments {
  public:
    void add_to(Command &command, ShortForms short_forms); // declares the options

    // Returns the config of TARGET. If TARGET is a model folder or a GGUF file, the config has
    // defaults: backend cpu, policy none, and a context that fits in memory.
    pipeline::PipelineConfig load() const;

    const std::string &target() const { return target_; }
    // Returns all overrides as KEY=VALUE in this order: `first`, the short forms, the values of
    // --set.
    std::vector<std::string> overrides(std::vector<std::string> first = {}) const;

  private:
    void add_sampling_forms(Command &command);
    void add_run_forms(Command &command); // of a single text
    void add_pipeline_forms(Command &command);
    Option &add_form(Command &command, std::string_view spelling, const std::string &key,
                     const char *doc);
    void check_contradictions(const pipeline::PipelineConfig &config) const;

    std::string target_;
    bool greedy_ = false;
    // The option that needs a policy that evicts: --budget or --sinks. Empty if neither of the two
    // options was given.
    std::string eviction_form_;
    std::vector<std::string> sets_;
    pipeline::OverrideNames names_; // names of the short forms, for messages
    // The short forms that were given, as KEY=VALUE (the form of --set), in the order of the
    // command line.
    std::vector<std::string> short_forms_;
};

} // namespace keel::cli
