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
    std::string against; // kl
    std::vector<std::string> against_sets;
};

void show_progress(const char *stage, uint64_t done, uint64_t total) {
    check_interrupt();
    const bool loading = std::string_view(stage) == "loading";
    console().progress(stage, done, total, loading ? Console::Unit::bytes : Console::Unit::tokens);
}

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
    // A context that somebody chose is the window that he wants to know about.
    const auto &chosen = pipeline.config().model.context;
    if (options.context == 0 && options.prefix == 0 && *chosen && pipeline.cache_plan().keeps_all()) {
        if (**chosen < 2)
            throw_error(ErrorKind::usage,
                        "{}: expected 2 tokens or more to score a text in windows of, found {}",
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
    const PerplexityReport report = measure_perplexity(pipeline, text, scoring_options(a, pipeline));
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
    const pipeline::PipelineConfig against = load_target(a.against, a.against_sets, "--against-set");
    const std::string text = read_scored_text(a.text);
    a.trace.open();
    const auto host = std::make_shared<HostServices>();
    const InterruptGuard guard(*host);
    Pipeline first(config, pipeline_options(config, host, a.batch));
    Pipeline reference(against, pipeline_options(against, host, a.batch));
    console().clear_progress();
    a.trace.watch(first); // one pipeline a trace: the one that is judged
    const DivergenceReport report = measure_divergence(first, reference, text, scoring_options(a, first));
    console().clear_progress();
    if (a.json) {
        print_json(divergence_json(report, KEEL_VERSION));
    } else {
        console().out(divergence_text(report));
    }
    return 0;
}

// What errors of the scoring name, as the command line does.
void spell_scoring(Program &program) {
    constexpr std::pair<const char *, const char *> options[] = {
        {"context", "--window"},        {"stride", "--stride"},
        {"prefix", "--prefix"},         {"continuation", "--continuation"},
        {"places", "--places"},         {"step", "--step"},
        {"max_tokens", "--max-tokens"}, {"batch", "--batch"}};
    for (const auto &[field, option] : options)
        program.spelled.emplace_back(std::string("ScoringOptions::") + field, option);
}

void add_scoring(CLI::App &command, EvalArguments &a) {
    command.add_option("--text", a.text, "The text to score; '-': from standard input")
        ->required()
        ->type_name("FILE");
    const auto number = [&](const char *name, int64_t &value, const char *doc) {
        return command.add_option(name, value, doc)
            ->type_name("N")
            ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
    };
    CLI::Option *window = number("--window", a.scoring.context,
                                 "Tokens of a window (default: --context, else 512 or what the cache holds)");
    CLI::Option *stride = number("--stride", a.scoring.stride, "From window to window (default: half)");
    number("--max-tokens", a.scoring.max_tokens, "Of the text (default: all)");
    CLI::Option *prefix = number("--prefix", a.scoring.prefix,
                                 "Instead of windows: prefill this many tokens, let the policy "
                                 "evict, then score what follows")
                              ->excludes(window)
                              ->excludes(stride);
    CLI::Option *continuation =
        number("--continuation", a.scoring.continuation, "Tokens to score behind a prefix")->needs(prefix);
    prefix->needs(continuation);
    number("--places", a.scoring.places, "Of the text to do that at, at most (default: 32)")->needs(prefix);
    number("--step", a.scoring.step,
           "Tokens taken in at a time; 1: as when text is written, so that the policy acts at each (default: "
           "many, or 1 behind a prefix under a policy that goes on evicting)");
    command
        .add_option(
            "--batch", a.batch,
            "Windows or places to score side by side, where tokens are taken in one by one (default: 1)")
        ->type_name("N")
        ->check(CLI::Range(1, static_cast<int>(Pipeline::most_batch)));
    command.add_flag("--no-bos", a.no_bos, "Do not put the token that begins a text in front of each window");
    command.add_flag("--json", a.json, "Print one JSON object, with each window or place");
}

void add_perplexity(CLI::App &eval, Program &program) {
    CLI::App &command = add_command(
        eval, program, "perplexity", "How well a pipeline predicts a text, over the cache as configured",
        {{"keel eval perplexity models/tiny --text models/tiny/heldout.txt", ""},
         {"keel eval perplexity models/tiny --weights q4_0 --text story.txt --window 1024 --stride 512", ""},
         {"keel eval perplexity my.yaml --text story.txt --prefix 1024 --continuation 128 --json",
          "what a policy that evicts at the prompt's end does to what follows"}});
    auto a = std::make_shared<EvalArguments>();
    a->pipeline.add_to(command, program, ShortForms::pipeline);
    add_scoring(command, *a);
    a->trace.add_to(command);
    set_action(command, program, [a, &program] {
        spell_scoring(program);
        return run_perplexity(*a);
    });
}

void add_kl(CLI::App &eval, Program &program) {
    CLI::App &command = add_command(
        eval, program, "kl", "How far a pipeline's predictions are from a reference's, side by side",
        {{"keel eval kl models/tiny --weights q4_0 --against models/tiny --text models/tiny/heldout.txt", ""},
         {"keel eval kl window.yaml --against full.yaml --text story.txt --prefix 1024 --continuation 128",
          "a policy against the full cache"}});
    auto a = std::make_shared<EvalArguments>();
    a->pipeline.add_to(command, program, ShortForms::pipeline);
    command.add_option("--against", a->against, "The reference: a second pipeline file or model")
        ->required()
        ->type_name("TARGET");
    command.add_option("--against-set", a->against_sets, "Change a key of the reference; can be repeated")
        ->type_name("KEY=VALUE")
        ->expected(1)
        ->take_all();
    add_scoring(command, *a);
    a->trace.add_to(command);
    set_action(command, program, [a, &program] {
        spell_scoring(program);
        return run_kl(*a);
    });
}

} // namespace

void add_eval(CLI::App &app, Program &program) {
    CLI::App &eval = *app.add_subcommand("eval", "How good a pipeline's predictions are, on a text of yours");
    eval.set_help_flag("-h,--help", "Show this help");
    eval.require_subcommand(1);
    add_perplexity(eval, program);
    add_kl(eval, program);
    add_eval_log(eval, program);
}

} // namespace keel::cli
