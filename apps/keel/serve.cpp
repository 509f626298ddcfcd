#include "console.hpp"
#include "model_server.hpp"
#include "pipeline_arguments.hpp"

#include "server/http/http_client.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

struct ServeArguments {
    PipelineArguments pipeline;
    ServerSettings settings;
    std::string status_url;
    double cache_mib = 0;
    int64_t body_mib = 16, connections = 1024;
    bool no_log = false;
};

// Prints the state of a running server.
int show_status(const ServeArguments &a) {
    std::string key;
    if (!a.settings.keys_file.empty())
        key = server::ApiKeys::load(a.settings.keys_file).all().front();
    const server::HttpAnswer answer = server::http_get(a.status_url, "/v1/status", key);
    if (answer.status == 401)
        throw_error(ErrorKind::usage, "{}: the server needs an API key; add --api-keys FILE",
                    printable(a.status_url, 200));
    const auto json = nlohmann::ordered_json::parse(answer.body, nullptr, false);
    if (answer.status != 200 || json.is_discarded())
        throw_error(ErrorKind::runtime, "{}: expected the status of a Keel server, found status {}",
                    printable(a.status_url, 200), answer.status);
    print_json(json);
    return 0;
}

int run_serve(ServeArguments &a) {
    if (!a.status_url.empty()) return show_status(a);
    if (a.pipeline.target().empty())
        throw_error(ErrorKind::usage, "keel serve: expected TARGET: a pipeline file (.yaml), the "
                                      "folder of a model, or a GGUF file");
    ServerSettings &s = a.settings;
    s.target = a.pipeline.target();
    s.overrides = a.pipeline.overrides();
    s.model_path = *a.pipeline.load().model.path;
    s.scheduler.cache_bytes = static_cast<uint64_t>(a.cache_mib * bytes_per_mib);
    s.limits.body_bytes = static_cast<size_t>(a.body_mib) << 20;
    s.limits.connections = static_cast<size_t>(a.connections);
    s.logs_requests = !a.no_log;
    return run_server(s);
}

void add_address_options(Command &command, ServeArguments &a) {
    ServerSettings &s = a.settings;
    const char *group = "Address and access";
    command.option("--host ADDRESS", s.host, "The address to listen at")
        .shows_default()
        .group(group);
    command
        .option("--port N", s.port,
                "The port to listen at; 0: a free port. The first line of output has the address")
        .range(0, 65535)
        .shows_default()
        .group(group);
    command.option("--unix PATH", s.unix_path, "Listen at a Unix socket, not at --host and --port")
        .group(group);
    command
        .option("--api-keys FILE", s.keys_file,
                "Accept only clients that send a key of this file, which has one key on each line")
        .group(group);
    command
        .option("--cors ORIGIN", s.origins,
                "Let web pages of this origin use the server, for example https://chat.example; "
                "'*': all; can be repeated. Pages of this machine may always use the server")
        .group(group);
}

void add_model_options(Command &command, ServeArguments &a) {
    ServerSettings &s = a.settings;
    const char *group = "Models and requests";
    command
        .option("--name NAME", s.model_name,
                "The model's name for clients (default: from the name of TARGET)")
        .group(group);
    command
        .option("--presets FILE", s.presets_file,
                "A YAML file of further model names, each with its own policy; SIGHUP reads the "
                "file again")
        .group(group);
    command
        .option("--chat-template NAME", s.chat_template,
                "Name of the chat template (default: the template in the model's files)")
        .group(group);
    command.option("--seats N", s.scheduler.seats, "Most sequences that run at once")
        .range(1, 256)
        .shows_default()
        .group(group);
    command.option("--queue N", s.scheduler.queue, "Most sequences that wait")
        .range(0, 1'000'000)
        .shows_default()
        .group(group);
    command
        .option("--cache-mib MIB", a.cache_mib,
                "Most memory of all caches together (default: no limit)")
        .range(0, 16'777'216)
        .group(group);
    command
        .option("--kept N", s.scheduler.kept,
                "Caches of ended requests that are kept for prompts that begin alike; 0: none")
        .range(0, 256)
        .shows_default()
        .group(group);
    command
        .option("--prompt-step N", s.scheduler.prompt_tokens_per_step,
                "Most prompt tokens that one step reads; lower values shorten the pauses of other "
                "requests (default: the backend's chunk)")
        .range(0, 1'000'000)
        .group(group);
}

void add_limit_options(Command &command, ServeArguments &a) {
    ServerSettings &s = a.settings;
    const char *group = "Limits";
    command.option("--max-body-mib MIB", a.body_mib, "Largest body of a request")
        .range(1, 1024)
        .shows_default()
        .group(group);
    command.option("--max-connections N", a.connections, "Most open connections")
        .range(1, 1'000'000)
        .shows_default()
        .group(group);
    command
        .option("--request-seconds S", s.limits.request_seconds,
                "Longest time in which a request must arrive completely (default: 60)")
        .range(0.1, 86400)
        .group(group);
    command
        .option("--idle-seconds S", s.limits.idle_seconds,
                "Longest time between two requests of a connection (default: 75)")
        .range(0.1, 86400)
        .group(group);
    command
        .option("--drain-seconds S", s.drain_seconds,
                "After SIGTERM or Ctrl-C, running requests have this time to end (default: 30)")
        .range(0, 86400)
        .group(group);
}

} // namespace

void add_serve(Command &keel, Program &program) {
    Command &command = add_command(
        keel, program, "serve", "Serve a model over HTTP, with OpenAI's interface",
        {{"keel serve models/tiny", "serves at http://127.0.0.1:8080"},
         {"keel serve model.gguf --seats 8 --cache-mib 4096 --api-keys keys.txt",
          "eight sequences at once, with one limit for all caches"},
         {"keel serve chat.yaml --policy h2o --budget 1024 --presets server.yaml",
          "every cache evicts; server.yaml has model names with other policies"},
         {"keel serve --status http://127.0.0.1:8080", "shows the state of a running server"}});
    auto a = std::make_shared<ServeArguments>();
    a->pipeline.add_to(command, ShortForms::requests);
    for (Option &option : command.options)
        if (option.is_called("TARGET")) option.optional(); // --status needs no model
    command.option("--status URL", a->status_url,
                   "Print the state of the server at http://HOST:PORT or unix:PATH, and end");
    add_address_options(command, *a);
    add_model_options(command, *a);
    add_limit_options(command, *a);
    command.flag("--vllm-metrics", a->settings.has_vllm_metrics,
                 "Also write metrics with the names that vLLM uses");
    command.flag("--no-log", a->no_log, "Do not write a line for each request");
    command.action = [a] { return run_serve(*a); };
}

} // namespace keel::cli
