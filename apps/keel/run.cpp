#include "console.hpp"
#include "interrupt.hpp"
#include "pipeline_arguments.hpp"
#include "text_input.hpp"

#include "base/error.hpp"
#include "base/log.hpp"
#include "device/explain.hpp"
#include "pipeline/generate.hpp"

#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

using Json = nlohmann::ordered_json;

struct RunOptions {
    PipelineArguments pipeline;
    std::string prompt, file;
    bool has_prompt = false;
    std::vector<std::string> stop;
    bool json = false, no_stream = false, ignore_eos = false, echo = false;
    bool explain = false, explain_only = false;
};

// -p, then -f, then a pipe, then the config.
std::string choose_prompt(const RunOptions &o, const pipeline::PipelineConfig &config) {
    if (o.has_prompt && !o.file.empty())
        throw_error(ErrorKind::usage, "-p and -f both give a prompt; give one of them");
    if (o.has_prompt) return o.prompt == "-" ? read_text("-") : o.prompt;
    if (!o.file.empty()) return read_text(o.file);
    const bool has_own = !config.generation.prompt->empty();
    if (auto text = piped_text(!has_own)) return *std::move(text);
    if (has_own) return *config.generation.prompt;
    throw_error(ErrorKind::usage,
                "there is no prompt: give one with -p TEXT or -f FILE, pipe it in, or set generation.prompt");
}

Json rows_json(std::span<const PlannedOp *const> ops) {
    Json rows = Json::array();
    for (const ExplainRow &row : explain_rows(ops)) {
        rows.push_back({{"op", row.op},
                        {"rung", row.rung},
                        {"kernel", row.kernel},
                        {"reason", row.reason},
                        {"count", row.count},
                        {"scratch_bytes", row.scratch_bytes},
                        {"crossing_bytes", row.crossing_bytes}});
    }
    return rows;
}

Json explain_json(Pipeline &p) {
    return {{"backend", p.device().plugin()},
            {"device", p.device().device_info().name},
            {"description", p.device().info().description},
            {"sync", to_string(p.executor().stream().strategy())},
            {"weights", p.weights().dtype_name()},
            {"weight_bytes_per_token", p.weights().bytes_per_token(p.device())},
            {"kv",
             {{"key_dtype", keel_dtype_name(p.kv_shape().key_dtype)},
              {"value_dtype", keel_dtype_name(p.kv_shape().value_dtype)},
              {"bytes_per_token", p.kv_shape().bytes_per_token()}}},
            {"decode", rows_json(p.graph().decode_ops())},
            {"prefill", rows_json(p.graph().prefill_ops())}};
}

Json result_json(Pipeline &p, const std::string &prompt, const GenerateResult &r) {
    const SessionStats &s = r.stats;
    const double steps = static_cast<double>(std::max<uint64_t>(s.decode_tokens, 1));
    Json stop = {{"reason", stop_reason_name(r.reason)}};
    if (!r.detail.empty()) stop["detail"] = r.detail;
    return {{"model", p.source().path()},
            {"prompt", prompt},
            {"text", r.text},
            {"ids", r.ids},
            {"stop", std::move(stop)},
            {"stats",
             {{"load_seconds", p.load_seconds()},
              {"first_token_seconds", r.first_token_seconds},
              {"prefill_tokens", s.prefill_tokens},
              {"prefill_seconds", s.prefill_seconds},
              {"prefill_tokens_per_second", s.prefill_rate()},
              {"decode_tokens", s.decode_tokens},
              {"decode_seconds", s.decode_seconds},
              {"decode_tokens_per_second", s.decode_rate()},
              {"kv_bytes", s.kv_bytes},
              {"kv_peak_bytes", s.kv_peak_bytes},
              {"evictions", s.evictions},
              {"evicted_bytes", s.evicted_bytes},
              {"submits_per_token", static_cast<double>(s.decode_stream.submits) / steps},
              {"waits_per_token", static_cast<double>(s.decode_stream.waits) / steps}}}};
}

void show_progress(const char *stage, uint64_t done, uint64_t total) {
    check_interrupt();
    const bool loading = std::string_view(stage) == "loading";
    console().progress(stage, done, total, loading ? Console::Unit::bytes : Console::Unit::tokens);
}

// The text is there already, or comes now; then what there is to say about it.
int finish(const RunOptions &o, const Program &program, Pipeline &pipeline, const std::string &prompt,
           const GenerateResult &result) {
    console().clear_progress();
    if (o.json) {
        print_json(result_json(pipeline, prompt, result));
    } else {
        if (o.no_stream) console().out((o.echo ? prompt : "") + result.text);
        console().end_line();
    }
    if (!program.quiet) {
        if (result.reason == StopReason::cache_full) console().message("keel: stopped: ", result.detail, 33);
        if (result.reason == StopReason::cancelled) console().message("keel: ", "interrupted");
        console().faint(closing_line(result) + "\n");
    }
    return result.reason == StopReason::cancelled ? interrupted_code : 0;
}

int run_pipeline(const RunOptions &o, const Program &program) {
    pipeline::PipelineConfig config = o.pipeline.load();
    if (!o.stop.empty()) config.generation.stop.value = o.stop;
    const std::string prompt = o.explain_only ? std::string() : choose_prompt(o, config);

    PipelineOptions options;
    options.host = std::make_shared<HostServices>();
    options.progress = show_progress;
    options.quiet_fallbacks = o.explain || o.explain_only;
    const InterruptGuard guard(*options.host);
    Pipeline pipeline(config, options);
    console().clear_progress();
    if (o.explain_only) {
        if (o.json) {
            print_json(explain_json(pipeline));
        } else {
            console().out(pipeline.explain());
        }
        return 0;
    }
    if (o.explain) console().faint(pipeline.explain());
    log().debug("loaded {} in {:.2f} s", pipeline.source().path(), pipeline.load_seconds());

    GenerateOptions generation = generate_options(config);
    generation.ignore_end = o.ignore_eos;
    generation.progress = [](const char *stage, uint64_t done, uint64_t total) {
        console().progress(stage, done, total, Console::Unit::tokens);
    };
    const bool stream = !o.json && !o.no_stream;
    if (stream) {
        generation.on_text = [](std::string_view text) { console().out(text); };
        if (o.echo) {
            console().out(prompt);
        } else if (!program.quiet && console().out_is_terminal() && console().err_is_terminal()) {
            console().faint(
                prompt); // a story reads better with its beginning; a pipe gets the new text alone
        }
    }
    Session session(pipeline);
    const std::vector<int32_t> ids = pipeline.tokenizer()->encode(prompt);
    return finish(o, program, pipeline, prompt, generate(session, ids, generation));
}

} // namespace

void add_run(CLI::App &app, Program &program) {
    CLI::App &command = add_command(
        app, program, "run", "Write text with a model: from a pipeline file, or from a model folder",
        {{"keel run configs/quickstart.yaml", ""},
         {"keel run configs/quickstart.yaml -p \"The fox said\" --seed 7 -n 200", ""},
         {"keel run models/tiny -p \"Once upon a time\" --greedy",
          "no pipeline file: backend cpu, nothing is evicted"},
         {"cat story.txt | keel run models/tiny -n 50", "the prompt comes from a pipe; '-f -' insists on it"},
         {"keel run configs/quickstart.yaml --set policy.budget.tokens=64 --set policy.params.window=60", ""},
         {"keel run configs/quickstart.yaml --json | jq .stats",
          "text, ids, stop reason and speeds as one object"}});
    auto o = std::make_shared<RunOptions>();
    o->pipeline.add_to(command, program, ShortForms::all);
    command
        .add_option_function<std::string>(
            "-p,--prompt",
            [o](const std::string &text) {
                o->prompt = text;
                o->has_prompt = true;
            },
            "The text to go on from; '-': from standard input")
        ->type_name("TEXT");
    command.add_option("-f,--file", o->file, "Read the prompt from a file; '-': from standard input")
        ->type_name("FILE");
    command.add_option("--stop", o->stop, "End where this text would come; can be repeated")
        ->type_name("TEXT")
        ->expected(1)
        ->take_all();
    command.add_flag("--ignore-eos", o->ignore_eos, "Go on past the token that ends a text");
    CLI::Option *echo = command.add_flag("--echo", o->echo, "Print the prompt in front of the text");
    CLI::Option *no_stream =
        command.add_flag("--no-stream", o->no_stream, "Print the text at the end, not as it is made");
    command.add_flag("--json", o->json, "Print one JSON object at the end: text, ids, stop, stats")
        ->excludes(echo)
        ->excludes(no_stream);
    command.add_flag("--explain", o->explain, "Print who runs each op, on standard error, then run");
    command.add_flag("--explain-only", o->explain_only, "Print that on standard output and stop");
    set_action(command, program, [o, &program] { return run_pipeline(*o, program); });
}

} // namespace keel::cli
