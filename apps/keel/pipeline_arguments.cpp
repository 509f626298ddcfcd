#include "pipeline_arguments.hpp"
#include "plugin_facts.hpp"

#include "base/error.hpp"
#include "run/pipeline.hpp"

namespace keel::cli {
namespace {

constexpr const char *forms_group = "Short forms of --set";

} // namespace

Option &PipelineArguments::add_form(Command &command, std::string_view spelling,
                                    const std::string &key, const char *doc) {
    const size_t at = spelling.find("--");
    const std::string name(spelling.substr(at, spelling.find(' ') - at));
    const auto take = [this, name, key](const std::string &value) {
        if (name == "--budget" || name == "--sinks") eviction_form_ = name;
        short_forms_.push_back(key + "=" + value);
        names_.of_key[key] = name;
    };
    return command.option(spelling, take, doc).last_counts().group(forms_group);
}

void PipelineArguments::add_run_forms(Command &command) {
    const auto add = [&](const char *spelling, const char *key, const char *doc) {
        add_form(command, spelling, key, doc);
    };
    add("-n,--max-tokens N", "generation.max_tokens", "Write at most N tokens");
    add("--lookup N", "generation.lookup",
        "Guess up to N tokens of a step from earlier text; 0: none");
    add("--seed N", "sampling.seed", "Random seed; the same seed gives the same text");
}

void PipelineArguments::add_sampling_forms(Command &command) {
    const auto add = [&](const char *spelling, const char *key, const char *doc) {
        add_form(command, spelling, key, doc);
    };
    add("--temperature X", "sampling.temperature",
        "Randomness: higher values give more varied text; 0: always the most likely token");
    add("--top-k N", "sampling.top_k", "Draw only from the N most likely tokens; 0: from all");
    add("--top-p X", "sampling.top_p",
        "Draw only from the most likely tokens whose probabilities sum up to X");
    add("--min-p X", "sampling.min_p",
        "Never draw tokens with less than X times the highest probability");
    add("--repetition-penalty X", "sampling.repetition_penalty",
        "Above 1: repeat earlier tokens less often");
    const auto be_greedy = [this] {
        short_forms_.emplace_back("sampling.temperature=0");
        greedy_ = true;
    };
    command
        .flag("--greedy", be_greedy, "Always take the most likely token; short for --temperature 0")
        .excludes({"--temperature", "--top-k", "--top-p", "--min-p", "--seed"})
        .group(forms_group);
}

void PipelineArguments::add_pipeline_forms(Command &command) {
    const auto add = [&](const char *spelling, const char *key, const char *doc) {
        add_form(command, spelling, key, doc);
    };
    add("--backend NAME", "backend.plugin",
        "The backend that computes; 'keel plugins list' shows all");
    add("--device WHICH", "backend.device",
        "Device of the backend: its index, a part of its name or vendor, or its type");
    add("--threads N", "backend.params.threads",
        "Number of threads; only for backends with this parameter, such as cpu");
    add("--weights TYPE", "model.weights", "Convert the weights to f32, f16, bf16, q8_0 or q4_0");
    add("-c,--context N", "model.context", "Longest sequence in tokens, including the prompt");
    add("--kv-dtype TYPE", "kv.dtype", "Type of the KV cache: f32, f16, bf16, q8_0 or q4_0");
    add("--kv-max-mib MIB", "kv.max_mib", "Fixed limit for the memory of the KV cache");
    add("--policy NAME", "policy.plugin",
        "The policy that evicts from the KV cache; 'keel plugins list' shows all");
    add("--budget N", "policy.budget.tokens",
        "Budget of the policy: evictions leave N tokens in the cache");
    add("--sinks N", "policy.protect.prefix", "Never evict the first N tokens (default: 4)");
    const auto be_strict = [this] { short_forms_.emplace_back("strict=true"); };
    command
        .flag("--strict", be_strict,
              "Fail if an op cannot run on the backend, instead of using a fallback")
        .group(forms_group);
}

void PipelineArguments::add_to(Command &command, ShortForms short_forms) {
    command.argument("TARGET", target_,
                     "A pipeline file (.yaml), the folder of a model, or a GGUF file");
    command.option(
        "--set KEY=VALUE", sets_,
        "Change a key of the pipeline, for example policy.budget.tokens=64; can be repeated; see "
        "docs/reference/config.md");
    if (short_forms == ShortForms::all) add_run_forms(command);
    if (short_forms == ShortForms::all || short_forms == ShortForms::requests)
        add_sampling_forms(command);
    if (short_forms != ShortForms::none) add_pipeline_forms(command);
}

std::vector<std::string> PipelineArguments::overrides(std::vector<std::string> first) const {
    first.insert(first.end(), short_forms_.begin(), short_forms_.end());
    first.insert(first.end(), sets_.begin(), sets_.end());
    return first;
}

// Throws Error(usage) for options that contradict each other, and for an option without effect.
// Keys in files and in --set are allowed to be unused, because the user can have written them for
// another policy or temperature. But an option is meant for this run.
void PipelineArguments::check_contradictions(const pipeline::PipelineConfig &config) const {
    if (greedy_ && *config.sampling.temperature != 0)
        throw_error(ErrorKind::usage,
                    "--greedy and {} = {} contradict each other; use only one of them",
                    to_string(config.sampling.temperature.where), *config.sampling.temperature);
    if (eviction_form_.empty()) return;
    const BoundPlugin policy = bind_plugin(config.policy, KEEL_PLUGIN_POLICY);
    if (!never_evicts(*policy.library, policy.params)) return;
    const SourceLocation &where = config.policy.plugin.where;
    throw_error(
        ErrorKind::usage,
        "{2} and policy {0}{1} exclude each other, because {0} evicts nothing; choose a policy "
        "that evicts with --policy ('keel plugins list' shows them), or remove {2}",
        policy.library->id(), where.line > 0 ? fmt::format(" ({})", to_string(where)) : "",
        eviction_form_);
}

pipeline::PipelineConfig PipelineArguments::load() const {
    pipeline::PipelineConfig config = pipeline::config_for_target(target_, overrides(), names_);
    check_contradictions(config);
    return config;
}

} // namespace keel::cli
