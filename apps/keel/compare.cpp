#include "console.hpp"
#include "interrupt.hpp"
#include "pipeline_arguments.hpp"

#include "base/error.hpp"
#include "eval/compare/report.hpp"
#include "reference/reference.hpp"

#include <nlohmann/json.hpp>
#include <random>
#include <system_error>

namespace keel::cli {
namespace {

namespace fs = std::filesystem;

struct CompareArguments {
    PipelineArguments pipeline;
    std::string against;
    std::vector<std::string> against_sets;
    std::optional<std::string> prompt;
    int64_t tokens = 0; // number of random tokens; 0: use the prompt
    int64_t steps = 8;
    double bound = -1; // negative: use the table of bounds
    std::string save;
    bool no_save = false, no_resync = false, json = false;
};

// Returns the config of the second pipeline. "reference" means the first pipeline, computed by the
// core's reference backend.
pipeline::PipelineConfig second_config(const CompareArguments &a,
                                       const pipeline::PipelineConfig &first) {
    if (is_reference(a.against)) {
        if (!a.against_sets.empty())
            throw_error(ErrorKind::usage,
                        "--against-set needs a second pipeline, but 'reference' computes the first "
                        "one; use --set, or another --against");
        pipeline::PipelineConfig config = first; // run_compare() refuses a hybrid
        config.backend.plugin.value = reference_plugin()->id;
        config.backend.params.clear();
        config.backend.device.value = "auto";
        config.fallback.value = reference_plugin()->id;
        return config;
    }
    return pipeline::config_for_target(a.against, a.against_sets, {.option = "--against-set"});
}

std::vector<int32_t> prompt_ids(const CompareArguments &a, const Pipeline &pipeline) {
    constexpr int64_t random_tokens = 32;
    const std::string text = a.prompt ? *a.prompt : *pipeline.config().generation.prompt;
    if (a.prompt && pipeline.tokenizer() == nullptr)
        throw_error(ErrorKind::usage,
                    "{}: the model has no tokenizer, but --prompt needs one; use --tokens",
                    pipeline.source().path());
    if (a.tokens == 0 && !text.empty() && pipeline.tokenizer() != nullptr)
        return pipeline.tokenizer()->encode(text);
    std::mt19937_64 random(1);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < (a.tokens > 0 ? a.tokens : random_tokens); ++i)
        ids.push_back(
            static_cast<int32_t>(random() % static_cast<uint64_t>(pipeline.model().vocab_size)));
    return ids;
}

bool is_taken(const fs::path &folder) {
    std::error_code error;
    return fs::exists(folder, error) && !fs::is_empty(folder, error);
}

// Returns the folder for the inputs of the first op that is beyond its bound. Never returns an
// existing folder, so that no file is overwritten.
std::optional<fs::path> save_folder(const CompareArguments &a) {
    if (a.no_save) return std::nullopt;
    if (!a.save.empty()) {
        if (is_taken(a.save))
            throw_error(ErrorKind::usage, "--save {}: this path exists already; name a new folder",
                        a.save);
        return fs::path(a.save);
    }
    constexpr int most = 1000;
    for (int i = 1; i <= most; ++i) {
        const fs::path folder = i == 1 ? "keel-compare" : "keel-compare-" + std::to_string(i);
        if (!is_taken(folder)) return folder;
    }
    throw_error(ErrorKind::usage,
                "the folders keel-compare to keel-compare-{} exist already; name another folder "
                "with --save",
                most);
}

int run_compare_command(const CompareArguments &a) {
    if (a.prompt && a.prompt->empty())
        throw_error(ErrorKind::usage, "--prompt: expected a text, found an empty one");
    CompareOptions compare;
    compare.save = save_folder(a);
    const pipeline::PipelineConfig config = a.pipeline.load();
    const pipeline::PipelineConfig against = second_config(a, config);
    for (const pipeline::PipelineConfig *c : {&config, &against}) {
        if (!c->hybrid.is_given()) continue;
        throw_error(
            ErrorKind::input,
            "{}: a hybrid cannot be compared op by op, because it runs ops on several backends; "
            "compare each backend separately: name it under 'backend', or with --set "
            "backend=NAME",
            to_string(c->hybrid.backends.where));
    }
    PipelineOptions options;
    options.host = std::make_shared<HostServices>();
    options.progress = show_progress;
    options.need_tokenizer = false;
    const InterruptGuard guard(*options.host);
    Pipeline first(config, options);
    Pipeline second(against, options);
    console().clear_progress();

    compare.prompt = prompt_ids(a, first);
    compare.steps = a.steps;
    compare.resync = !a.no_resync;
    if (a.bound >= 0) compare.bound = a.bound;
    compare.progress = show_progress;
    const CompareReport report = compare_pipelines(first, second, compare);
    console().clear_progress();
    if (a.json) {
        print_json(compare_json(report));
    } else {
        console().out(compare_table(report));
    }
    return report.passed() ? 0 : 1;
}

} // namespace

void add_compare(Command &keel, Program &program) {
    Command &command = add_command(
        keel, program, "compare",
        "Run two pipelines on the same tokens and report the first op whose results differ too "
        "much",
        {{"keel compare models/tiny --against reference",
          "compares the backend with the core's reference code"},
         {"keel compare a.yaml --against b.yaml --prompt \"Once upon a time\" --steps 32", ""},
         {"keel compare models/tiny --weights q4_0 --against models/tiny --against-set "
          "model.weights=bf16",
          ""},
         {"keel compare my.yaml --against reference --json | jq .finding",
          "prints null if every op is within its bound (exit code 0, else 1)"}});
    auto a = std::make_shared<CompareArguments>();
    a->pipeline.add_to(command, ShortForms::pipeline);
    command
        .option("--against TARGET", a->against,
                "The second pipeline: a pipeline file, a model folder, or 'reference'")
        .required();
    command.option("--against-set KEY=VALUE", a->against_sets,
                   "Change a key of the second pipeline; can be repeated");
    command.option("-p,--prompt TEXT", a->prompt,
                   "The prompt (default: the prompt of the pipeline, else 32 random tokens)");
    command.option("--tokens N", a->tokens, "Use N random tokens as the prompt")
        .range(1, 1 << 20)
        .excludes({"--prompt"});
    command
        .option("--steps N", a->steps,
                "Decode N tokens after the prompt; the second pipeline chooses them")
        .shows_default();
    command
        .option("--bound X", a->bound,
                "Allowed error of all ops (default: depends on op and dtype, see "
                "docs/reference/compare.md)")
        .range(0, 1e6);
    command.option(
        "--save DIR", a->save,
        "New folder for the inputs of the first op beyond its bound (default: keel-compare)");
    command.flag("--no-save", a->no_save, "Do not save any inputs").excludes({"--save"});
    command.flag("--no-resync", a->no_resync,
                 "Let errors add up: do not correct the first pipeline's results after each op");
    command.flag("--json", a->json, "Print one JSON object");
    command.action = [a] { return run_compare_command(*a); };
}

} // namespace keel::cli
