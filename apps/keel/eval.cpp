#include "console.hpp"
#include "eval_log.hpp"
#include "interrupt.hpp"
#include "pipeline_arguments.hpp"
#include "text_input.hpp"
#include "trace_option.hpp"

#include "base/error.hpp"
#include "eval/scoring/divergence.hpp"
#include "model/source.hpp"

#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

struct EvalArguments {
    PipelineArguments pipeline;
    std::string text;
    ScoringOptions scoring;
    TraceOption trace;
    bool no_bos = false, json = false;
    uint32_t batch = 1;
    std::string against; // only for `kl`
    std::vector<std::string> against_sets;
};

PipelineOptions pipeline_options(const pipeline::PipelineConfig &config,
                                 const std::shared_ptr<HostServices> &host, uint32_t batch) {
    PipelineOptions options;
    options.batch = batch;
    options.host = host;
    options.progress = show_progress;
    options.max_logit_rows = scoring_rows(open_model(config.model)->config().vocab_size);
    return options;
}

ScoringOptions scoring_options(const EvalArguments &a, const Pipeline &pipeline) {
    ScoringOptions options = a.scoring;
    // If the user chose a context, the length of the windows is this context.
    const auto &chosen = pipeline.config().model.context;
    if (options.context == 0 && options.prefix == 0 && *chosen &&
        pipeline.policy_setup().keeps_all()) {
        if (**chosen < 2)
            throw_error(ErrorKind::usage, "{}: expected a window of at least 2 tokens, found {}",
                        to_string(chosen.where), **chosen);
        options.context = **chosen;
    }
    options.bos = !a.no_bos;
    options.progress = show_progress;
    return options;
}

int run_perplexity(const EvalArguments &a) {
    const pipeline::PipelineConfig config = a.pipeline.load();
    const std::string text = read_scored_text(a.text);
    a.trace.open();
    const auto host = std::make_shared<HostServices>();
    const InterruptGuard guard(*host);
    Pipeline pipeline(config, pipeline_options(config, host, a.batch));
    console().clear_progress();
    a.trace.watch(pipeline);
    const PerplexityReport report =
        measure_perplexity(pipeline, text, scoring_options(a, pipeline));
    console().clear_progress();
    if (a.json) {
        print_json(perplexity_json(report, KEEL_VERSION));
    } else {
        console().out(perplexity_text(report));
    }
    return 0;
}

int run_kl(const EvalArguments &a) {
    const pipeline::PipelineConfig config = a.pipeline.load();
    const pipeline::PipelineConfig against =
        pipeline::config_for_target(a.against, a.against_sets, {.option = "--against-set"});
    const std::string text = read_scored_text(a.text);
    a.trace.open();
    const auto host = std::make_shared<HostServices>();
    const InterruptGuard guard(*host);
    Pipeline first(config, pipeline_options(config, host, a.batch));
    Pipeline reference(against, pipeline_options(against, host, a.batch));
    console().clear_progress();
    a.trace.watch(first); // a trace records only the evaluated pipeline
    const DivergenceReport report =
        measure_divergence(first, reference, text, scoring_options(a, first));
    console().clear_progress();
    if (a.json) {
        print_json(divergence_json(report, KEEL_VERSION));
    } else {
        console().out(divergence_text(report));
    }
    return 0;
}

void add_scoring(Command &command, EvalArguments &a) {
    command.option("--text FILE", a.text, "The file with the text to score; '-': standard input")
        .required();
    const auto number = [&](const char *spelling, int64_t &value, const char *doc) -> Option & {
        return command.option(spelling, value, doc).range(1, 1 << 30);
    };
    number("--window N", a.scoring.context,
           "Length of a window in tokens (default: --context, else 512 or the cache's capacity)");
    number("--stride N", a.scoring.stride,
           "Distance between the starts of windows, in tokens (default: half a window)");
    number("--max-tokens N", a.scoring.max_tokens,
           "Use only the first N tokens of the text (default: all)");
    number(
        "--prefix N", a.scoring.prefix,
        "Instead of windows: prefill N tokens, let the policy evict, then score the tokens after "
        "them")
        .excludes({"--window", "--stride"})
        .needs({"--continuation"});
    number("--continuation N", a.scoring.continuation, "Score N tokens after each prefix")
        .needs({"--prefix"});
    number("--places N", a.scoring.places,
           "Use at most N prefixes, spread evenly over the text (default: 32)")
        .needs({"--prefix"});
    number("--step N", a.scoring.step,
           "Tokens of a step; 1: decode steps, so that the policy acts as in generation (default: "
           "many, or 1 after a prefix if the policy keeps evicting)");
    command
        .option("--batch N", a.batch,
                "Score N windows or prefixes together, if steps have one token (default: 1)")
        .range(1, Pipeline::most_batch);
    command.flag("--no-bos", a.no_bos,
                 "Do not begin each window with the token that begins a text (BOS)");
    command.flag("--json", a.json, "Print one JSON object, with all windows or prefixes");
}

void add_perplexity(Command &eval, Program &program) {
    Command &command = add_command(
        eval, program, "perplexity", "Measure how well a pipeline predicts a text",
        {{"keel eval perplexity models/tiny --text models/tiny/heldout.txt", ""},
         {"keel eval perplexity models/tiny --weights q4_0 --text story.txt --window 1024 --stride "
          "512",
          ""},
         {"keel eval perplexity my.yaml --text story.txt --prefix 1024 --continuation 128 --json",
          "measures the effect of an eviction on the tokens after it"}});
    auto a = std::make_shared<EvalArguments>();
    a->pipeline.add_to(command, ShortForms::pipeline);
    add_scoring(command, *a);
    a->trace.add_to(command);
    command.action = [a] { return run_perplexity(*a); };
}

void add_kl(Command &eval, Program &program) {
    Command &command = add_command(
        eval, program, "kl", "Measure how much a pipeline's predictions differ from a reference's",
        {{"keel eval kl models/tiny --weights q4_0 --against models/tiny --text "
          "models/tiny/heldout.txt",
          ""},
         {"keel eval kl window.yaml --against full.yaml --text story.txt --prefix 1024 "
          "--continuation 128",
          "compares a policy with the full cache"}});
    auto a = std::make_shared<EvalArguments>();
    a->pipeline.add_to(command, ShortForms::pipeline);
    command.option("--against TARGET", a->against, "The reference: a pipeline file or a model")
        .required();
    command.option("--against-set KEY=VALUE", a->against_sets,
                   "Change a key of the reference; can be repeated");
    add_scoring(command, *a);
    a->trace.add_to(command);
    command.action = [a] { return run_kl(*a); };
}

} // namespace

void add_eval(Command &keel, Program &program) {
    Command &eval =
        keel.add_command("eval", "Measure how well a pipeline predicts a text; show eviction logs");
    add_perplexity(eval, program);
    add_kl(eval, program);
    add_eval_log(eval, program);
}

} // namespace keel::cli
