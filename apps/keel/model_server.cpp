#include "model_server.hpp"

#include "console.hpp"

#include "server/http/http_server.hpp"
#include "server/service/scheduler_engine.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "run/conversation.hpp"

#include <atomic>
#include <csignal>
#include <exception>
#include <thread>

namespace keel::cli {
namespace {

using namespace keel::server;

// Thrown by the progress callback if the server stops while the model is loaded.
struct LoadingStopped : std::exception {};

std::string default_name(const std::string &target) {
    std::filesystem::path path = std::filesystem::path(target).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(path, ignored);
    const std::string name = (is_folder ? path.filename() : path.stem()).string();
    return name.empty() || name == "." || name == ".." ? "model" : name;
}

bool is_loopback(const std::string &host) {
    return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// The core's error for an error of libkeel.
Error core_error(const api::Error &e) {
    ErrorKind kind = ErrorKind::internal;
    switch (e.kind()) {
    case api::ErrorKind::usage: kind = ErrorKind::usage; break;
    case api::ErrorKind::input: kind = ErrorKind::input; break;
    case api::ErrorKind::plugin: kind = ErrorKind::plugin; break;
    case api::ErrorKind::resource: kind = ErrorKind::resource; break;
    case api::ErrorKind::runtime: kind = ErrorKind::runtime; break;
    case api::ErrorKind::internal: break;
    }
    return {kind, e.what()};
}

std::shared_ptr<const ServedModel> load_model(const ServerSettings &s,
                                              const std::atomic<bool> &is_stopping) {
    auto model = std::make_shared<ServedModel>();
    model->tokenizer = load_tokenizer(s.model_path);
    try {
        ChatTemplate chat = choose_chat_template(s.model_path, s.chat_template,
                                                 {"/v1/completions", "--chat-template NAME"});
        model->chat.emplace(std::move(chat), *model->tokenizer);
        model->chat_template = load_chat_template(s.model_path).jinja;
    } catch (const Error &e) {
        // A model without a template can still continue text.
        if (!s.chat_template.empty()) throw;
        model->chat_problem = e.what();
    }
    const auto progress = [&](const char *, uint64_t done, uint64_t total) {
        if (is_stopping) throw LoadingStopped();
        console().progress("loading", done, total, Console::Unit::bytes);
    };
    try {
        model->engine =
            std::make_shared<SchedulerEngine>(s.target, s.overrides, s.scheduler, progress);
    } catch (const api::Error &e) {
        throw core_error(e);
    }
    console().clear_progress();
    return model;
}

ServiceOptions service_options(const ServerSettings &s) {
    ServiceOptions options;
    options.model_name = s.model_name.empty() ? default_name(s.target) : s.model_name;
    options.version = api::version();
    if (!s.presets_file.empty()) options.aliases = load_aliases(s.presets_file);
    if (!s.keys_file.empty()) options.keys = ApiKeys::load(s.keys_file);
    options.cors = Cors(s.origins);
    options.has_vllm_metrics = s.has_vllm_metrics;
    if (s.logs_requests) options.log = [](const std::string &line) { console().message("", line); };
    return options;
}

std::string listen(HttpServer &server, const ServerSettings &s) {
    if (!s.unix_path.empty()) {
        server.listen_unix(s.unix_path);
        return "unix:" + s.unix_path;
    }
    const uint16_t port = server.listen_tcp(s.host, static_cast<uint16_t>(s.port));
    if (!is_loopback(s.host) && s.keys_file.empty())
        log().warn("--host {}: every computer that reaches this address can use the server; "
                   "set --api-keys to accept only clients with a key",
                   printable(s.host));
    const bool is_v6 = s.host.find(':') != std::string::npos;
    return fmt::format("http://{}:{}", is_v6 ? "[" + s.host + "]" : s.host, port);
}

// One run of the server, from the first connection to the end.
class ServerRun {
  public:
    explicit ServerRun(const ServerSettings &settings)
        : settings_(settings), service_(service_options(settings)),
          server_(service_, settings.limits) {}

    int run() {
        service_.attach(server_);
        const std::string address = listen(server_, settings_);
        server_.on_signals({SIGINT, SIGTERM}, [this](int) { stop(); });
        server_.on_signals({SIGHUP}, [this](int) { reload(); });
        console().out("listening at " + address + "\n");
        std::thread loader([this] { load(); });
        server_.run();
        is_stopping_ = true;
        loader.join();
        service_.shut_down();
        if (failure_) std::rethrow_exception(failure_);
        return 0;
    }

  private:
    void load() {
        try {
            auto model = load_model(settings_, is_stopping_);
            server_.post([this, model = std::move(model)] {
                service_.set_model(model);
                console().message("keel: ", "the model is loaded");
            });
        } catch (const LoadingStopped &) { // stop() ends the server
        } catch (...) {
            failure_ = std::current_exception();
            server_.stop();
        }
    }

    // The first signal lets running requests end. The second one ends them at once.
    void stop() {
        if (is_stopping_) return server_.stop();
        is_stopping_ = true;
        console().message("keel: ",
                          fmt::format("waiting at most {} s for running requests; a second signal "
                                      "ends them at once",
                                      settings_.drain_seconds));
        server_.drain();
        service_.drain(settings_.drain_seconds, [this] { server_.stop(); });
    }

    void reload() {
        try {
            Aliases aliases;
            ApiKeys keys;
            if (!settings_.presets_file.empty()) aliases = load_aliases(settings_.presets_file);
            if (!settings_.keys_file.empty()) keys = ApiKeys::load(settings_.keys_file);
            service_.set_presets(std::move(aliases), std::move(keys));
            console().message("keel: ", "presets and keys are read again");
        } catch (const Error &e) {
            log().warn("presets and keys stay as they were: {}", e.what());
        }
    }

    const ServerSettings &settings_;
    Service service_;
    HttpServer server_;
    std::atomic<bool> is_stopping_{false};
    std::exception_ptr failure_; // written by the loader before server_.stop()
};

} // namespace

int run_server(const ServerSettings &settings) { return ServerRun(settings).run(); }

} // namespace keel::cli
