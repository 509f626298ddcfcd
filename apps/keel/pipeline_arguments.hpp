#pragma once

#include "program.hpp"

#include "config/target.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace keel::cli {

// Which short forms of --set a command takes: those that change what it does, and no others.
enum class ShortForms {
    none,
    pipeline, // --backend, --weights and the like: what computes, and with what
    all,      // also -n, --temperature and the like: what is written
};

// TARGET, --set and their short forms, as commands take them that run a pipeline.
class PipelineArguments {
  public:
    void add_to(Command &command, ShortForms short_forms); // declares them

    // The config of a pipeline file, or of a model folder or GGUF file: backend cpu, policy none, a
    // context that fits the memory.
    pipeline::PipelineConfig load() const;

    const std::string &target() const { return target_; }
    // What the command line changes, as --set takes it: short forms, then --set, behind `first`.
    std::vector<std::string> overrides(std::vector<std::string> first = {}) const;

  private:
    void add_text_forms(Command &command);
    void add_pipeline_forms(Command &command);
    Option &add_form(Command &command, std::string_view spelling, const std::string &key,
                     const char *doc);
    void check_contradictions(const pipeline::PipelineConfig &config) const;

    std::string target_;
    bool greedy_ = false;
    // The option that needs a policy that evicts: --budget or --sinks. Empty: neither was given.
    std::string eviction_form_;
    std::vector<std::string> sets_;
    pipeline::OverrideNames names_;        // of the short forms
    std::vector<std::string> short_forms_; // as --set takes them, in the order of the command line
};

} // namespace keel::cli
