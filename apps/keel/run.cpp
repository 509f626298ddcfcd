#include "console.hpp"
#include "interrupt.hpp"
#include "pipeline_arguments.hpp"
#include "run_batch.hpp"
#include "run_report.hpp"
#include "text_input.hpp"
#include "trace_option.hpp"

#include "base/error.hpp"
#include "base/fingerprint.hpp"
#include "base/log.hpp"
#include "config/config_writer.hpp"
#include "platform/new_file.hpp"
#include "run/explain.hpp"
#include "run/generate.hpp"
#include "run/report.hpp"
#include "run/session_file.hpp"
#include "text/chat_template.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

struct RunOptions {
    PipelineArguments pipeline;
    TraceOption trace;
    std::optional<std::string> prompt;
    std::string file;
    std::vector<std::string> stop, pin;
    bool json = false, no_stream = false, ignore_eos = false, echo = false;
    bool explain = false, explain_only = false;
    std::optional<int64_t> logprobs;
    std::string save_session, load_session;
    std::string prompts, output;
    uint32_t batch = 1;
};

// Returns the prompt from the first source that is given. The order of the sources is -p, -f, a
// pipe, the config. A loaded session can continue without a prompt. For a loaded session, the
// config's prompt is not used, because the session can already begin with this prompt.
std::string choose_prompt(const RunOptions &o, const pipeline::PipelineConfig &config) {
    if (o.prompt && !o.file.empty())
        throw_error(ErrorKind::usage, "-p and -f both set the prompt; use only one of them");
    if (o.prompt) return o.prompt == "-" ? read_text("-") : *o.prompt;
    if (!o.file.empty()) return read_text(o.file);
    const bool has_own = !config.generation.prompt->empty(), goes_on = !o.load_session.empty();
    if (auto text = piped_text(!has_own && !goes_on)) return *std::move(text);
    if (goes_on) return {};
    if (has_own) return *config.generation.prompt;
    throw_error(ErrorKind::usage, "there is no prompt; set the prompt with -p TEXT or -f FILE, "
                                  "through a pipe, or with generation.prompt");
}

// Ends the output. Prints the text first if the text was not streamed. Then prints the statistics.
int finish(const RunOptions &o, const Program &program, Pipeline &pipeline,
           const std::string &prompt, const GenerateResult &result) {
    console().clear_progress();
    if (o.json) {
        print_json(result_json(pipeline, prompt, result));
    } else {
        if (o.no_stream) console().out((o.echo ? prompt : "") + result.text);
        console().end_line();
        if (o.logprobs) console().out(logprobs_text(*pipeline.tokenizer(), result));
    }
    if (!program.quiet) {
        if (result.reason == StopReason::cache_full)
            console().message("keel: stopped: ", result.detail, 33);
        if (result.reason == StopReason::cancelled) console().message("keel: ", "interrupted");
        if (result.reason == StopReason::device_lost)
            console().message("keel: error: ", result.detail, 31);
        console().faint(closing_line(result) + "\n");
    }
    if (result.reason == StopReason::device_lost) return 1;
    return result.reason == StopReason::cancelled ? interrupted_code : 0;
}

// Returns the options of a generation, except for the text callback.
GenerateOptions generation_options(const RunOptions &o, const pipeline::PipelineConfig &config) {
    GenerateOptions generation = generate_options(config);
    generation.ignore_end = o.ignore_eos;
    generation.logprobs = o.logprobs;
    if (!o.pin.empty()) generation.pin_key = "--pin";
    return generation;
}

// Throws before the run if the session cannot be saved. The remaining checks are made when the
// session is saved.
void check_can_save(const RunOptions &o, Pipeline &pipeline) {
    if (o.save_session.empty()) return;
    check_savable(pipeline);
    check_replaceable(o.save_session);
    const NewFile probe(o.save_session);
}

// Loads a saved session. The state of its random generator continues too, unless the command line
// sets a seed.
void load(const RunOptions &o, Session &session, GenerateOptions &generation) {
    const SessionExtras extras = load_session(session, o.load_session);
    const auto &seed = session.pipeline().config().sampling.seed;
    const bool is_option = !seed.is_default() && seed.where.line == 0;
    if (!is_option) generation.random = extras.random;
}

void save(const RunOptions &o, Session &session, const GenerateResult &result) {
    if (result.ids.empty() && result.reason == StopReason::cancelled) {
        console().message("keel: ",
                          "the session is not saved, because the prompt was not read completely");
        return;
    }
    save_session(session, o.save_session, {result.random, {}});
}

// True if the prompt has a special token that does not begin a text, or the template's text after a
// question. Then the prompt already follows the template.
bool has_turns(const std::string &prompt, const ChatTemplate &chat, const Tokenizer &tokenizer) {
    for (const int32_t id : tokenizer.encode(prompt, false))
        if (tokenizer.kind(id) == TokenKind::special && id != tokenizer.bos_id()) return true;
    std::string marks;
    for (const ChatPiece &piece : chat.frame(tokenizer, std::nullopt).after) marks += piece.text;
    const size_t from = std::min(marks.find_first_not_of(" \n"), marks.size());
    marks = marks.substr(from, marks.find_last_not_of(" \n") + 1 - from);
    return !marks.empty() && prompt.find(marks) != std::string::npos;
}

// If the model has a chat template, tells the user about 'keel chat'. 'keel run' does not use the
// template; it only continues the text of the prompt.
void hint_at_chat(const std::string &model, const std::string &prompt, const Tokenizer &tokenizer) {
    if (!log().should_log(LogLevel::info)) return;
    try {
        const FoundChatTemplate chat = load_chat_template(model);
        if (!chat.has_template() || has_turns(prompt, chat.open(), tokenizer)) return;
    } catch (const Error &e) { // 'keel chat' reports this as an error
        log().debug("the chat template cannot be used: {}", e.what());
        return;
    }
    log().info("{}: the model has a chat template, but 'keel run' continues the prompt as it "
               "is; to get an answer to the prompt, use 'keel chat'",
               model);
}

int run_one(const RunOptions &o, const Program &program, Pipeline &pipeline,
            const std::string &prompt) {
    GenerateOptions generation = generation_options(o, pipeline.config());
    generation.progress = [](const char *stage, uint64_t done, uint64_t total) {
        console().progress(stage, done, total, Console::Unit::tokens);
    };
    Session session(pipeline);
    if (!o.load_session.empty()) load(o, session, generation);
    const bool goes_on = session.tokens() > 0;
    if (!o.json && !goes_on)
        hint_at_chat(*pipeline.config().model.path, prompt, *pipeline.tokenizer());
    const bool stream = !o.json && !o.no_stream;
    if (stream) {
        generation.on_text = [](std::string_view text) { console().out(text); };
        if (o.echo) {
            console().out(prompt);
        } else if (!program.quiet && console().out_is_terminal() && console().err_is_terminal()) {
            console().faint(prompt); // the prompt is printed only on a terminal, not to a pipe
        }
    }
    // The text of a loaded session must not get the token that begins a text (BOS) in the middle.
    const std::vector<int32_t> ids = pipeline.tokenizer()->encode(
        prompt,
        EncodeOptions{.add_special = !goes_on, .parse_special = true, .continues = goes_on});
    if (goes_on && ids.empty() && !session.pending())
        throw_error(ErrorKind::usage,
                    "{}: the saved session has no generated text yet, so a prompt is needed to "
                    "continue; set the prompt with -p TEXT",
                    o.load_session);
    if (ids.empty() && !o.pin.empty())
        throw_error(ErrorKind::usage, "--pin needs a prompt that contains the pinned text, but "
                                      "there is no prompt; set the prompt with -p TEXT");
    const GenerateResult result = generate(session, ids, generation);
    const int code = finish(o, program, pipeline, prompt, result);
    if (!o.save_session.empty() && result.reason != StopReason::device_lost)
        save(o, session, result);
    return code;
}

// A fingerprint of the settings that affect the answer to a prompt.
std::string batch_settings(const RunOptions &o, pipeline::PipelineConfig config) {
    config.generation.prompt = {};
    config.policy.log = {};
    return fingerprint(
        fmt::format("{}\n{} {}", pipeline::to_yaml(config), o.ignore_eos, o.logprobs.value_or(-1)));
}

int run_pipeline(const RunOptions &o, const Program &program) {
    pipeline::PipelineConfig config = o.pipeline.load();
    if (!o.stop.empty()) config.generation.stop.value = o.stop;
    if (!o.pin.empty()) config.generation.pin.value = o.pin;
    const bool is_batch = !o.prompts.empty();
    std::string prompt;
    if (!o.explain_only && !is_batch) {
        try {
            prompt = choose_prompt(o, config);
        } catch (const Error &) {
            // This check reports errors of the pipeline before the error about a missing prompt.
            PipelineOptions check;
            check.check_only = true;
            const Pipeline checked(config, check);
            throw;
        }
    }
    std::vector<BatchPrompt> prompts;
    std::optional<AnswerFile> output;
    if (is_batch && !o.explain_only) {
        check_apart(o.prompts, o.output);
        prompts = read_prompts(o.prompts);
        output.emplace(o.output, prompts, batch_settings(o, config));
    }

    if (!o.explain_only) o.trace.open();
    PipelineOptions options;
    options.host = std::make_shared<HostServices>();
    options.progress = show_progress;
    options.quiet_fallbacks = o.explain || o.explain_only;
    options.batch = o.batch;
    const InterruptGuard guard(*options.host);
    Pipeline pipeline(config, options);
    console().clear_progress();
    if (o.explain_only) {
        if (o.json) {
            print_json(explain_json(pipeline));
        } else {
            console().out(explain_pipeline(pipeline));
        }
        return 0;
    }
    if (o.explain) console().faint(explain_pipeline(pipeline));
    o.trace.watch(pipeline);
    log().debug("loaded {} in {:.2f} s", pipeline.source().path(), pipeline.load_seconds());
    if (is_batch)
        return run_batch(pipeline, prompts, *output, generation_options(o, config), program);
    check_can_save(o, pipeline);
    return run_one(o, program, pipeline, prompt);
}

} // namespace

void add_run(Command &keel, Program &program) {
    Command &command = add_command(
        keel, program, "run", "Write text with a model",
        {{"keel run configs/quickstart.yaml", ""},
         {"keel run configs/quickstart.yaml -p \"The fox said\" --seed 7 -n 200", ""},
         {"keel run models/tiny -p \"Once upon a time\" --greedy",
          "uses no pipeline file: backend cpu, policy none"},
         {"cat story.txt | keel run models/tiny -n 50",
          "reads the prompt from a pipe; '-f -' waits for the pipe"},
         {"keel run configs/quickstart.yaml --set policy.budget.tokens=64 --set "
          "policy.params.window=60",
          ""},
         {"keel run configs/quickstart.yaml --json | jq .stats",
          "prints text, ids, stop reason and speeds as one object"},
         {"keel run models/tiny --prompts questions.jsonl --output answers.jsonl",
          "answers many prompts, one JSON object on each line; a second start continues the work"},
         {"keel run models/tiny --prompts questions.jsonl --output answers.jsonl --batch 8",
          "answers eight prompts together: the same answers, but faster"},
         {"keel run models/tiny -f long.txt --save-session long.session",
          "then 'keel run models/tiny --load-session long.session -p \"...\"' need not read it "
          "again"}});
    auto o = std::make_shared<RunOptions>();
    o->pipeline.add_to(command, ShortForms::all);
    command.option("-p,--prompt TEXT", o->prompt,
                   "The text to continue; '-': read it from standard input");
    command.option("-f,--file FILE", o->file, "Read the prompt from a file; '-': standard input");
    command.option("--stop TEXT", o->stop, "End the text before this string; can be repeated");
    command.option(
        "--pin TEXT", o->pin,
        "Never evict this part of the prompt, which must occur exactly once in the prompt; "
        "can be repeated");
    command.flag("--ignore-eos", o->ignore_eos, "Continue after the token that ends a text");
    command.flag("--echo", o->echo, "Print the prompt before the text");
    command.flag("--no-stream", o->no_stream, "Print the text only at the end");
    command.flag("--json", o->json, "Print one JSON object at the end: text, ids, stop, stats")
        .excludes({"--echo", "--no-stream"});
    command
        .option("--logprobs N", o->logprobs,
                "Print, after the text, each token's log-probability and the N most likely tokens "
                "(at most 1000)")
        .range(0, 1000);
    command.option("--save-session FILE", o->save_session,
                   "At the end, save cache, text and random state to a file");
    command.option("--load-session FILE", o->load_session,
                   "Continue a saved session, with or without a prompt");
    command
        .option("--prompts FILE", o->prompts,
                "Answer many prompts: one JSON object on each line, with id and prompt")
        .excludes({"--prompt", "--file", "--echo", "--no-stream", "--json", "--save-session",
                   "--load-session"})
        .needs({"--output"});
    command
        .option("--output FILE", o->output,
                "The file for the answers, one on each line; prompts whose id it has are skipped")
        .needs({"--prompts"});
    command
        .option("--batch N", o->batch,
                "Write N answers together, in steps that read the weights once for all")
        .range(1, Pipeline::most_batch)
        .needs({"--prompts"})
        .shows_default();
    command.flag("--explain", o->explain,
                 "First print the backend and kernel of each op on standard error");
    o->trace.add_to(command);
    command
        .flag("--explain-only", o->explain_only,
              "Print the backend and kernel of each op on standard output, and stop")
        .excludes({"--trace"});
    command.action = [o, &program] { return run_pipeline(*o, program); };
}

} // namespace keel::cli
