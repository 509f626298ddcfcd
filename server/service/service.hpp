#pragma once

#include "server/http/http_server.hpp"
#include "server/service/aliases.hpp"
#include "server/service/auth.hpp"
#include "server/service/chat_renderer.hpp"
#include "server/service/cors.hpp"
#include "server/service/jobs.hpp"
#include "server/service/request_fields.hpp"
#include "server/service/router.hpp"
#include "server/service/work_queue.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace keel::server {

// A loaded model. The members are shared by the threads of the server.
struct ServedModel {
    std::shared_ptr<Engine> engine;
    std::shared_ptr<const Tokenizer> tokenizer;
    std::optional<ChatRenderer> chat; // nullopt: the model has no chat template
    std::string chat_problem;         // why there is none
    std::string chat_template;        // the Jinja text of the model's files; may be empty
};

struct ServiceOptions {
    std::string model_name; // the id in /v1/models
    std::string version;    // of Keel
    Aliases aliases;
    ApiKeys keys;
    Cors cors;
    bool has_vllm_metrics = false;
    // Gets a line of JSON for each request. Empty: no log.
    std::function<void(const std::string &line)> log;
};

// The endpoints of the server. All members must be called in the I/O thread, or before it runs.
class Service final : public Handler {
  public:
    explicit Service(ServiceOptions options);
    ~Service() override;

    // Must be called before the server runs.
    void attach(HttpServer &server);
    // Must be called after the server has stopped and before it is destroyed. Ends the work queue
    // and the engine, which both use the server.
    void shut_down();
    // The model is loaded. Until then, endpoints that need it answer with 503.
    void set_model(std::shared_ptr<const ServedModel> model) { model_ = std::move(model); }
    // Replaces aliases and keys.
    void set_presets(Aliases aliases, ApiKeys keys);

    // Refuses new requests that generate text. Calls `done` when all answers are complete, or after
    // `seconds`; then the remaining answers end with an error.
    void drain(double seconds, std::function<void()> done);
    bool is_draining() const { return is_draining_; }

    std::optional<HttpResponse> refuse(const HttpRequest &head) override;
    void handle(std::shared_ptr<Exchange> exchange) override;
    HttpResponse error(int status, const std::string &message) override;
    void add_headers(const HttpRequest &request, HttpResponse &response) override;
    void ended(const HttpRequest &request, const std::string &id, const std::string &log_members,
               const ExchangeEnd &end) override;

  private:
    using SharedModel = std::shared_ptr<const ServedModel>;
    struct Named { // a model's name as a request gave it, and the policy that belongs to it
        std::string name;
        std::optional<KeelFields> keel;
    };

    void add_routes();
    void wait_for_end(double seconds, std::function<void()> done);
    void ping_later();
    SharedModel model() const; // throws ApiError 503 while the model is loaded
    // Makes an answer in the work queue. `make` may throw.
    void reply_later(std::shared_ptr<Exchange> exchange, std::function<HttpResponse()> make);
    Named named_model(const CommonFields &fields, const Aliases &aliases,
                      const std::optional<std::string> &header) const;

    // endpoints_generate.cpp
    struct Body; // a body and what belongs to it, for the work queue
    std::shared_ptr<Body> take_body(const Exchange &exchange) const;
    void complete(const std::shared_ptr<Exchange> &exchange);
    void chat(const std::shared_ptr<Exchange> &exchange);
    PreparedJob prepare_completion(const Body &body) const;
    PreparedJob prepare_chat(const Body &body) const;
    api::Request make_request(const CommonFields &fields, const Named &named,
                              const ServedModel &model, std::vector<int32_t> prompt) const;

    // endpoints_text.cpp
    void tokenize(const std::shared_ptr<Exchange> &exchange);
    void detokenize(const std::shared_ptr<Exchange> &exchange);
    void tokenizer_info(const std::shared_ptr<Exchange> &exchange);
    void apply_template(const std::shared_ptr<Exchange> &exchange);

    // endpoints_info.cpp
    void models(const std::shared_ptr<Exchange> &exchange);
    void health(const std::shared_ptr<Exchange> &exchange);
    void ready(const std::shared_ptr<Exchange> &exchange);
    void metrics(const std::shared_ptr<Exchange> &exchange);
    void policies(const std::shared_ptr<Exchange> &exchange);
    void status(const std::shared_ptr<Exchange> &exchange);

    ServiceOptions options_;
    HttpServer *server_ = nullptr;
    Router router_;
    SharedModel model_;
    Metrics metrics_;
    std::unique_ptr<Jobs> jobs_;
    std::map<uint64_t, std::shared_ptr<Exchange>> waiting_; // for reply_later()
    uint64_t last_waiting_ = 0;
    bool is_draining_ = false;
    std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
    std::unique_ptr<WorkQueue> work_; // the last member, so its thread ends first
};

// A response with a JSON body.
HttpResponse json_response(std::string body);

} // namespace keel::server
