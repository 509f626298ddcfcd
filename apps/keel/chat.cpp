#include "chat.hpp"

#include "interrupt.hpp"
#include "pipeline_arguments.hpp"
#include "text_input.hpp"

#include "base/error.hpp"

namespace keel::cli {
namespace {

struct ChatArguments {
    PipelineArguments pipeline;
    ChatSettings settings;
    std::string system_file;
    bool no_history = false;
};

int run_chat(ChatArguments &a, const Program &program) {
    if (a.settings.system && !a.system_file.empty())
        throw_error(ErrorKind::usage,
                    "--system and --system-file both give a system prompt; give one of them");
    if (!a.system_file.empty()) a.settings.system = read_text(a.system_file);
    if (a.settings.system && !a.settings.load.empty())
        throw_error(ErrorKind::usage, "--load brings the system prompt of the saved chat; leave "
                                      "out --system, or begin a new chat");
    pipeline::PipelineConfig config = a.pipeline.load();
    if (!a.settings.stop.empty()) config.generation.stop.value = a.settings.stop;
    a.settings.overrides = a.pipeline.overrides();
    a.settings.quiet = program.quiet;
    const auto host = std::make_shared<HostServices>();
    const InterruptGuard guard(*host);
    a.settings.trace.open();
    LineReader reader(a.no_history ? "" : "chat_history");
    Chat chat(config, host, a.settings);
    return chat.run(reader);
}

} // namespace

void add_chat(Command &keel, Program &program) {
    Command &command = add_command(
        keel, program, "chat", "Talk with a model, turn by turn",
        {{"keel chat Llama-3.2-1B-Instruct-Q8_0.gguf",
          "a chat model from the net, no other file needed"},
         {"keel chat models/assistant --system \"Answer in one sentence.\" --temperature 0.3", ""},
         {"keel chat long_talk.yaml --stats",
          "a pipeline whose cache forgets what is old, with its numbers"},
         {"printf 'Who are you?\\nWhy?\\n' | keel chat models/assistant -q",
          "questions from a pipe, a line each"}});
    auto a = std::make_shared<ChatArguments>();
    a->pipeline.add_to(command, ShortForms::all);
    command.option("--template NAME", a->settings.chat_template,
                   "How turns are marked (default: as the model's files say)");
    command.option("--system TEXT", a->settings.system,
                   "What the model is told before the first question");
    command.option("--system-file FILE", a->system_file, "The same from a file");
    command.option("--stop TEXT", a->settings.stop,
                   "End an answer where this text would come; can be repeated");
    command.option("--load FILE", a->settings.load, "Go on with a chat that /save wrote");
    command.flag("--stats", a->settings.stats, "Print speeds and cache after each answer");
    a->settings.trace.add_to(command);
    command.flag("--no-history", a->no_history, "Keep no history of lines that were typed");
    command.action = [a, &program] { return run_chat(*a, program); };
}

} // namespace keel::cli
