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
                    "--system and --system-file both set the system prompt; use only one of them");
    if (!a.system_file.empty()) a.settings.system = read_text(a.system_file);
    if (a.settings.system && !a.settings.load.empty())
        throw_error(ErrorKind::usage, "--load restores the system prompt of the saved chat; remove "
                                      "--system, or start a new chat without --load");
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
        keel, program, "chat", "Chat with a model",
        {{"keel chat Llama-3.2-1B-Instruct-Q8_0.gguf",
          "a GGUF file of a chat model needs no other files"},
         {"keel chat models/assistant --system \"Answer in one sentence.\" --temperature 0.3", ""},
         {"keel chat long_talk.yaml --stats",
          "a pipeline whose cache evicts old tokens; prints statistics"},
         {"printf 'Who are you?\\nWhy?\\n' | keel chat models/assistant -q",
          "reads questions from a pipe, one on each line"}});
    auto a = std::make_shared<ChatArguments>();
    a->pipeline.add_to(command, ShortForms::all);
    command.option("--template NAME", a->settings.chat_template,
                   "Name of the chat template (default: the template in the model's files)");
    command.option("--system TEXT", a->settings.system,
                   "The system prompt: instructions before the first question");
    command.option("--system-file FILE", a->system_file, "Read the system prompt from a file");
    command.option("--stop TEXT", a->settings.stop,
                   "End an answer before this text; can be repeated");
    command.option("--load FILE", a->settings.load, "Continue a chat that /save wrote");
    command.flag("--stats", a->settings.stats, "Print speeds and cache sizes after each answer");
    a->settings.trace.add_to(command);
    command.flag("--no-history", a->no_history, "Do not save the typed lines in the history file");
    command.action = [a, &program] { return run_chat(*a, program); };
}

} // namespace keel::cli
