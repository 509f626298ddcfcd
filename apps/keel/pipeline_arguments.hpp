#pragma once

#include "program.hpp"

#include "config/target.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace keel::cli {

// The short forms of --set that a command takes, such as --backend for backend.plugin. A command
// takes only the forms that change its behaviour.
enum class ShortForms {
    none,
    pipeline, // --backend, --weights and others that choose how to compute
    all,      // also -n, --temperature and others that choose the output
};

// TARGET, --set and their short forms, for all commands that run a pipeline.
class PipelineArguments {
  public:
    void add_to(Command &command, ShortForms short_forms); // declares the options

    // The config of TARGET. For a model folder or a GGUF file: backend cpu, policy none, and a
    // context that fits the memory.
    pipeline::PipelineConfig load() const;

    const std::string &target() const { return target_; }
    // All overrides as KEY=VALUE, in this order: `first`, then the short forms, then those of
    // --set.
    std::vector<std::string> overrides(std::vector<std::string> first = {}) const;

  private:
    void add_text_forms(Command &command);
    void add_pipeline_forms(Command &command);
    Option &add_form(Command &command, std::string_view spelling, const std::string &key,
                     const char *doc);
    void check_contradictions(const pipeline::PipelineConfig &config) const;

    std::string target_;
    bool greedy_ = false;
    // The given option that needs a policy that evicts: --budget or --sinks. Empty if neither was
    // given.
    std::string eviction_form_;
    std::vector<std::string> sets_;
    pipeline::OverrideNames names_; // names of the short forms, for messages
    // The given short options as KEY=VALUE, the form of --set, in the order of the command line.
    std::vector<std::string> short_forms_;
};

} // namespace keel::cli
