#include "eval/ab/plan/experiment.hpp"

#include "base/error.hpp"
#include "base/fingerprint.hpp"
#include "config/config_writer.hpp"
#include "config/override.hpp"
#include "config/params.hpp"
#include "eval/ab/plan/resolved_yaml.hpp"
#include "eval/ab/tasks/tasks.hpp"
#include "platform/paths.hpp"
#include "reference/reference.hpp"
#include "run/pipeline.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <system_error>

namespace keel::ab {
namespace {

namespace fs = std::filesystem;
using pipeline::PipelineConfig;
using pipeline::YamlNode;

[[noreturn]] void fail(const SourceLocation &where, const std::string &what) {
    throw_at(where, ErrorKind::input, "{}", what);
}

PipelineConfig arm_config(const YamlNode &base, const ArmEntry &arm) {
    YamlNode tree = base;
    pipeline::merge_overrides(tree, arm.overrides);
    PipelineConfig config = pipeline::make_config(tree);
    if (config.policy.log->has_value())
        fail(config.policy.log.where, fmt::format("arm '{}': policy.log cannot be set in an "
                                                  "experiment; to get a log for each arm, set "
                                                  "'output: {{eviction_logs: true}}'",
                                                  arm.name));
    return config;
}

PipelineConfig with_budget(PipelineConfig config, const Budget &budget) {
    pipeline::BudgetSection &b = config.policy.budget;
    const pipeline::Setting<std::optional<int64_t>> slack = b.slack;
    b = {};
    b.slack = slack;
    const auto set = [&](auto &setting, auto value) {
        setting.value = value;
        setting.where = budget.where;
    };
    switch (budget.unit) {
    case BudgetUnit::tokens: set(b.tokens, static_cast<int64_t>(budget.value)); break;
    case BudgetUnit::ratio: set(b.ratio, budget.value); break;
    case BudgetUnit::mib: set(b.mib, budget.value); break;
    }
    return config;
}

// Returns the label of a budget that is set in the arm itself or in the base.
std::string own_label(const pipeline::BudgetSection &b) {
    Budget budget;
    switch (b.kind()) {
    case pipeline::BudgetKind::tokens:
        budget = {BudgetUnit::tokens, static_cast<double>(b.tokens->value()), {}};
        break;
    case pipeline::BudgetKind::ratio: budget = {BudgetUnit::ratio, b.ratio->value(), {}}; break;
    case pipeline::BudgetKind::mib: budget = {BudgetUnit::mib, b.mib->value(), {}}; break;
    // The policy has a budget of its own, for example a window among its parameters.
    case pipeline::BudgetKind::none: return "own";
    }
    return budget.label();
}

// True if the trigger can call the policy not only at the end of the prompt, but also later.
bool acts_again(const pipeline::TriggerSection &trigger) {
    return std::any_of(trigger.on.value.begin(), trigger.on.value.end(),
                       [](pipeline::Trigger on) { return on != pipeline::Trigger::prefill_end; });
}

// True if the arm sets a budget itself.
bool fixes_budget(const ArmEntry &arm) {
    const pipeline::YamlEntry *policy = arm.overrides.find("policy");
    if (policy == nullptr || !policy->value.is_map()) return false;
    const pipeline::YamlEntry *budget = policy->value.find("budget");
    if (budget == nullptr || !budget->value.is_map()) return false;
    return std::any_of(
        budget->value.entries.begin(), budget->value.entries.end(),
        [](const pipeline::YamlEntry &e) { return e.key != "slack" && !e.value.is_null(); });
}

class Resolver {
  public:
    Resolver(Config config, const ResolveOptions &options) : options_(options) {
        e_.config = std::move(config);
    }

    Experiment run() {
        read_base();
        for (const ArmEntry &arm : e_.config.arms) add_arm(arm);
        for (Run &run : e_.runs) path_params_of(run.config); // makes the paths absolute
        const auto is_reference = [&](const Run &run) { return run.arm == e_.config.reference; };
        std::stable_partition(e_.runs.begin(), e_.runs.end(), is_reference);
        if (!e_.reference().keeps_all)
            fail(reference_entry().where,
                 fmt::format(
                     "the reference '{}' evicts; expected an arm that evicts nothing (policy: "
                     "none), because distances are measured from it",
                     e_.config.reference));
        Run again = e_.reference();
        again.arm += rerun_suffix;
        again.is_rerun = true;
        e_.runs.push_back(std::move(again));
        e_.form = PromptForm::choose(e_.config.chat, *e_.reference().config.model.path);
        e_.model_hash = hash_of_model(*e_.reference().config.model.path);
        e_.resolved = yaml_of(e_);
        const std::string text = hashed_text();
        e_.experiment_hash = fingerprint(text);
        std::string circumstances = options_.circumstances;
        for (const auto &[path, library] : libraries_) e_.libraries.push_back(library);
        std::sort(e_.libraries.begin(), e_.libraries.end());
        for (const auto &[name, file] : e_.libraries)
            circumstances += fmt::format("\n{} {}", name, file);
        e_.hash = fingerprint(fmt::format("{}\n{}", circumstances, text));
        return std::move(e_);
    }

  private:
    void read_base() {
        std::error_code error;
        if (!fs::exists(e_.config.base, error))
            fail(e_.config.base_where, fmt::format("{}: no such file; expected a pipeline file",
                                                   e_.config.base.string()));
        base_ = pipeline::load_yaml(e_.config.base);
        if (!base_.is_map()) pipeline::load_config(e_.config.base); // throws the error
        const YamlNode sets = pipeline::parse_overrides(options_.sets, absolute_path("."));
        for (const char *section : {"generation", "sampling"}) {
            if (const pipeline::YamlEntry *entry = sets.find(section))
                refuse_unused(entry->where, {}, section);
        }
        const pipeline::YamlEntry *policy = sets.find("policy"),
                                  *protect =
                                      policy == nullptr ? nullptr : policy->value.find("protect"),
                                  *system = protect == nullptr
                                                ? nullptr
                                                : protect->value.find("system_prompt");
        if (system != nullptr) refuse_unused(system->where, {}, "policy.protect.system_prompt");
        pipeline::merge_overrides(base_, sets);
        base_config_ = pipeline::make_config(base_);
    }

    [[noreturn]] static void refuse_unused(const SourceLocation &where, const std::string &who,
                                           const std::string &key) {
        fail(where,
             fmt::format(
                 "{}'{}' has no effect in an experiment: the tasks make the prompts ('chat.system' "
                 "is their system prompt), and decoding is greedy; remove the key (to keep "
                 "tokens at given places, use policy.protect.prefix, .recent or .spans)",
                 who, key));
    }

    // Throws Error(input) if an arm changes keys that an experiment does not use. `generation.pin`
    // is an error in the base pipeline too, because an experiment does not keep the tokens that
    // `generation.pin` pins.
    void check_used(const PipelineConfig &config, const ArmEntry &arm) const {
        const std::string who = fmt::format("arm '{}': ", arm.name);
        if (!config.generation.pin->empty())
            refuse_unused(config.generation.pin.where, who, "generation.pin");
        std::map<std::string, std::string> base;
        for (const pipeline::ResolvedKey &key : pipeline::resolved_keys(base_config_))
            base[key.path] = key.value;
        for (const pipeline::ResolvedKey &key : pipeline::resolved_keys(config)) {
            const bool unused = key.path.starts_with("generation.") ||
                                key.path.starts_with("sampling.") ||
                                key.path == "policy.protect.system_prompt";
            if (unused && key.value != base[key.path])
                refuse_unused(key.where.file.empty() ? arm.where : key.where, who, key.path);
        }
    }

    const ArmEntry &reference_entry() const {
        return *std::find_if(e_.config.arms.begin(), e_.config.arms.end(),
                             [&](const ArmEntry &arm) { return arm.name == e_.config.reference; });
    }

    void add_arm(const ArmEntry &arm) {
        const PipelineConfig config = arm_config(base_, arm);
        check_used(config, arm);
        describe(config);
        std::vector<std::pair<std::string, PipelineConfig>> budgets;
        if (fixes_budget(arm) && !arm.budgets.empty())
            fail(arm.where, fmt::format("arm '{}' has both 'budgets' and 'policy.budget'; keep one",
                                        arm.name));
        const std::vector<Budget> &list = arm.budgets.empty() ? e_.config.budgets : arm.budgets;
        if (fixes_budget(arm) || list.empty()) {
            budgets.emplace_back(own_label(config.policy.budget), config);
        } else {
            for (const Budget &budget : list)
                budgets.emplace_back(budget.label(), with_budget(config, budget));
        }
        for (auto &[label, complete] : budgets) {
            Run run;
            run.arm = arm.name;
            run.budget = label;
            run.config = std::move(complete);
            run.is_spread = !fixes_budget(arm) && !list.empty();
            if (!ask(run, arm)) continue;
            e_.runs.push_back(std::move(run));
            // an arm that evicts nothing has no budget, so it runs once
            if (e_.runs.back().keeps_all) {
                e_.runs.back().budget = "full";
                e_.runs.back().is_spread = false;
                e_.runs.back().config = config;
                return;
            }
        }
    }

    static void refuse_hybrid(const Run &run, const ArmEntry &arm) {
        const auto &backends = run.config.hybrid.backends;
        if (!run.config.hybrid.is_given()) return;
        fail(
            backends.where.file.empty() ? arm.where : backends.where,
            fmt::format(
                "arm '{}': an arm of an experiment needs a single backend, because arms are forked "
                "from a shared prompt and a hybrid's sequence cannot be forked into another "
                "policy; name one backend under 'backend', or use 'keel bench', 'keel eval' "
                "or 'keel run' for the hybrid",
                arm.name));
    }

    // Asks the arm's policy for the policy's properties. Returns false if the arm cannot run.
    bool ask(Run &run, const ArmEntry &arm) {
        refuse_hybrid(run, arm);
        try {
            PipelineOptions options;
            options.host = options_.host;
            options.check_only = true;
            options.quiet_fallbacks = true;
            options.batch = e_.config.batch;
            const Pipeline checked(run.config, options);
            note_libraries(run.config, checked);
            const PolicySetup &plan = checked.policy_setup();
            run.keeps_all = plan.keeps_all();
            const bool again = acts_again(run.config.policy.trigger);
            run.acts_in_prefill = again && plan.acts_in_prefill();
            run.acts_in_decode = again && !run.keeps_all && !plan.prefill_only();
            run.is_seeded = !run.keeps_all && (plan.needs().flags & KEEL_POLICY_SEEDED) != 0;
            // Some policies use their seed only to make a projection matrix. The seed of a
            // projection matrix is a part of the method, like a parameter. Such a seed does not
            // draw slots.
            run.draws_slots = run.is_seeded && (plan.needs().needs & KEEL_NEED_KEY_PROJECT) == 0;
            run.seeds =
                run.is_seeded ? e_.config.seeds : std::vector<uint64_t>{e_.config.seeds.front()};
            return true;
        } catch (const Error &e) {
            throw Error(e.kind(), fmt::format("arm '{}' at budget {} ({}): {}", arm.name,
                                              run.budget, to_string(arm.where), e.what()));
        }
    }

    void note_library(const PluginLibrary *library) {
        if (library == nullptr || libraries_.contains(library->path())) return;
        constexpr uint64_t most = uint64_t{1} << 30;
        libraries_[library->path()] = {
            library->name(), fmt::format("{} {}", library->path().filename().string(),
                                         fingerprint(read_text_file(library->path(), most)))};
    }
    void note_backend(const std::string &plugin, const SourceLocation &where) {
        if (!is_reference(plugin))
            note_library(&PluginRegistry::process().get(plugin, KEEL_PLUGIN_BACKEND, where));
    }
    // Records the plugin files that a run uses, because a rebuilt or replaced plugin can give
    // different numbers.
    void note_libraries(const PipelineConfig &config, const Pipeline &checked) {
        note_library(checked.policies().own().policy.library);
        note_library(checked.policies().own().allocator.library);
        note_backend(*config.fallback, config.fallback.where);
        if (!config.hybrid.is_given())
            return note_backend(*config.backend.plugin, config.backend.plugin.where);
        for (const pipeline::HybridBackend &backend : *config.hybrid.backends)
            note_backend(*backend.plugin, backend.plugin.where);
    }

    // Describes the differences of an arm from the base: the keys whose values differ.
    void describe(const PipelineConfig &config) {
        std::map<std::string, std::string> base;
        for (const pipeline::ResolvedKey &key : pipeline::resolved_keys(base_config_))
            base[key.path] = key.value;
        std::string text;
        for (const pipeline::ResolvedKey &key : pipeline::resolved_keys(config)) {
            if (key.value != base[key.path] && !key.value.empty())
                text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", key.path, key.value);
        }
        e_.differences.push_back(text.empty() ? "the base pipeline" : text);
    }

    // Returns the parameters of a pipeline's plugins that are paths of files.
    static std::vector<pipeline::RawParam *> path_params_of(PipelineConfig &config) {
        std::vector<pipeline::RawParam *> all;
        const auto add = [&](pipeline::PluginSection &section, keel_plugin_kind kind) {
            for (pipeline::RawParam *param : pipeline::path_params(section, kind))
                all.push_back(param);
        };
        add(config.backend, KEEL_PLUGIN_BACKEND);
        add(config.policy, KEEL_PLUGIN_POLICY);
        add(config.policy.allocator, KEEL_PLUGIN_ALLOCATOR);
        return all;
    }

    // Returns everything that affects the numbers, as text. The text does not contain statistics,
    // output and contrasts. Files are represented by their contents, not by their paths.
    std::string hashed_text() const {
        std::string text = fmt::format("reference {}\n", e_.config.reference);
        if (e_.config.batch > 1) text += fmt::format("batch {}\n", e_.config.batch);
        for (const Run &run : e_.runs) {
            PipelineConfig config = run.config;
            config.sampling = base_config_.sampling;
            config.generation = base_config_.generation;
            const fs::path model = *config.model.path;
            config.model.path.value = "/model";
            std::string files; // hash of the files' contents
            for (pipeline::RawParam *param : path_params_of(config)) {
                if (fs::is_regular_file(param->text))
                    files += fingerprint(read_text_file(param->text, uint64_t{1} << 30)) + "\n";
                param->text = fs::path(param->text).filename().string();
            }
            text += fmt::format("{} {} {}\n{}\n", run.arm, run.budget,
                                model == *e_.reference().config.model.path ? e_.model_hash
                                                                           : hash_of_model(model),
                                pipeline::to_yaml(config) + files);
            for (const uint64_t seed : run.seeds) text += fmt::format("seed {}\n", seed);
        }
        for (const Protocol protocol : e_.config.protocols)
            text += fmt::format("{}\n", protocol_name(protocol));
        text += fmt::format("prompts {}\n", e_.form.description());
        for (const Task &task : e_.config.tasks) {
            Task plain = task;
            plain.text = plain.path = plain.filler = fs::path{};
            text += task_yaml(plain) + "\n";
            for (const fs::path &file : task_files(task, *e_.reference().config.model.path))
                text += fingerprint(read_text_file(file, uint64_t{1} << 30)) + "\n";
        }
        return text;
    }

    const ResolveOptions &options_;
    Experiment e_;
    YamlNode base_;
    PipelineConfig base_config_;
    // The entries of Experiment::libraries, by path.
    std::map<fs::path, std::pair<std::string, std::string>> libraries_;
};

} // namespace

Experiment resolve_experiment(Config config, const ResolveOptions &options) {
    return Resolver(std::move(config), options).run();
}

std::string hash_of_model(const fs::path &model) {
    std::error_code error;
    std::vector<fs::path> files{model};
    if (fs::is_directory(model, error)) {
        files.clear();
        for (const auto &entry : fs::directory_iterator(model, error)) {
            const std::string name = entry.path().filename().string();
            const bool counts = name.ends_with(".safetensors") || name.ends_with(".gguf") ||
                                name.ends_with(".model") || name == "config.json" ||
                                name.starts_with("tokenizer") || name == "generation_config.json";
            if (counts && entry.is_regular_file(error)) files.push_back(entry.path());
        }
        std::sort(files.begin(), files.end());
    }
    // At most 16 MiB of each file are read, in pieces.
    constexpr uint64_t piece = 65536, pieces = 256;
    std::string text, buffer(piece, '\0');
    for (const fs::path &file : files) {
        const uint64_t size = fs::file_size(file, error);
        if (error) continue;
        text += fmt::format("{} {}\n", file.filename().string(), size);
        std::ifstream in(file, std::ios::binary);
        const uint64_t step = std::max(piece, size / pieces);
        for (uint64_t at = 0; at < size && in; at += step) {
            in.seekg(static_cast<std::streamoff>(at));
            in.read(buffer.data(), static_cast<std::streamsize>(std::min(piece, size - at)));
            text +=
                fingerprint(std::string_view(buffer).substr(0, static_cast<size_t>(in.gcount())));
        }
    }
    return fingerprint(text);
}

} // namespace keel::ab
