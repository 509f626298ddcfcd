#include "server/service/service.hpp"

#include "base/error.hpp"
#include "base/json_writer.hpp"
#include "platform/clock.hpp"

namespace keel::server {
namespace {

constexpr double ping_seconds = 15, drain_step_seconds = 0.05;

} // namespace

HttpResponse json_response(std::string body) {
    HttpResponse response;
    response.body = std::move(body);
    return response;
}

Service::Service(ServiceOptions options) : options_(std::move(options)) { add_routes(); }

Service::~Service() = default;

void Service::attach(HttpServer &server) {
    server_ = &server;
    work_ = std::make_unique<WorkQueue>();
    jobs_ = std::make_unique<Jobs>(
        [this](std::function<void()> call) { server_->post(std::move(call)); },
        [this](std::function<void()> call) { work_->add(std::move(call)); }, metrics_);
    ping_later();
}

void Service::shut_down() {
    work_.reset();
    // The connections end later. Then no job may use the engine.
    if (jobs_) jobs_->fail_all(ApiError(503, "the server shuts down"));
    if (model_) model_->engine->stop();
}

void Service::add_routes() {
    const auto add = [this](const char *method, const char *path,
                            void (Service::*endpoint)(const std::shared_ptr<Exchange> &),
                            bool is_public = false) {
        router_.add({method, path,
                     [this, endpoint](const std::shared_ptr<Exchange> &exchange) {
                         (this->*endpoint)(exchange);
                     },
                     is_public});
    };
    add("GET", "/health", &Service::health, true);
    add("GET", "/ready", &Service::ready, true);
    add("GET", "/v1/models", &Service::models);
    add("POST", "/v1/completions", &Service::complete);
    add("POST", "/v1/chat/completions", &Service::chat);
    add("POST", "/tokenize", &Service::tokenize);
    add("POST", "/detokenize", &Service::detokenize);
    add("GET", "/tokenizer_info", &Service::tokenizer_info);
    add("POST", "/apply-template", &Service::apply_template);
    add("GET", "/metrics", &Service::metrics);
    add("GET", "/v1/policies", &Service::policies);
    add("GET", "/v1/status", &Service::status);
}

void Service::set_presets(Aliases aliases, ApiKeys keys) {
    options_.aliases = std::move(aliases);
    options_.keys = std::move(keys);
}

void Service::ping_later() {
    server_->after(ping_seconds / 2, [this] {
        jobs_->ping(ping_seconds / 2);
        ping_later();
    });
}

void Service::drain(double seconds, std::function<void()> done) {
    is_draining_ = true;
    wait_for_end(seconds, std::move(done));
}

void Service::wait_for_end(double seconds, std::function<void()> done) {
    if (jobs_->count() == 0 && waiting_.empty() && server_->connections() == 0) return done();
    if (seconds <= 0) {
        jobs_->fail_all(ApiError(503, "the server shuts down"));
        // the error needs a moment to reach the clients
        server_->after(10 * drain_step_seconds, std::move(done));
        return;
    }
    server_->after(drain_step_seconds, [this, seconds, done = std::move(done)] {
        wait_for_end(seconds - drain_step_seconds, done);
    });
}

Service::SharedModel Service::model() const {
    if (model_) return model_;
    ApiError error(503, "the model is being loaded; try again later", std::nullopt, "loading");
    error.retry_after = 1;
    throw error;
}

std::optional<HttpResponse> Service::refuse(const HttpRequest &head) {
    if (Cors::is_preflight(head)) return std::nullopt;
    try {
        const bool is_options = head.method == "OPTIONS";
        if (is_options && (head.path == "*" || !router_.allowed(head.path).empty()))
            return std::nullopt;
        const Route &route = router_.find(head);
        if (!route.is_public && !options_.keys.accepts(head)) {
            HttpResponse response =
                error_response({401,
                                "expected an API key in the header 'Authorization: Bearer KEY' or "
                                "'X-Api-Key: KEY', found none or an unknown one",
                                std::nullopt, "invalid_api_key"});
            response.headers.emplace_back("WWW-Authenticate", "Bearer");
            return response;
        }
        if (is_draining_ && route.method == "POST") {
            ApiError error(503, "the server shuts down");
            error.retry_after = 5;
            HttpResponse response = error_response(error);
            response.close = true;
            return response;
        }
        return std::nullopt;
    } catch (const ApiError &e) {
        HttpResponse response = error_response(e);
        if (e.status == 405) response.headers.emplace_back("Allow", router_.allowed(head.path));
        return response;
    }
}

void Service::handle(std::shared_ptr<Exchange> exchange) {
    const HttpRequest &request = exchange->request();
    try {
        if (Cors::is_preflight(request)) return exchange->answer(options_.cors.preflight(request));
        if (request.method == "OPTIONS") {
            HttpResponse response;
            response.status = 204;
            response.type.clear();
            const std::string allowed = router_.allowed(request.path);
            response.headers.emplace_back("Allow",
                                          allowed.empty() ? "GET, HEAD, POST, OPTIONS" : allowed);
            return exchange->answer(std::move(response));
        }
        router_.find(request).handle(exchange);
    } catch (...) {
        const ApiError problem = current_api_error();
        exchange->log_members = error_log(problem);
        exchange->answer(error_response(problem));
    }
}

void Service::reply_later(std::shared_ptr<Exchange> exchange, std::function<HttpResponse()> make) {
    const uint64_t number = ++last_waiting_;
    waiting_[number] = std::move(exchange);
    work_->add([this, number, make = std::move(make)] {
        auto response = std::make_shared<HttpResponse>();
        try {
            *response = make();
        } catch (...) {
            *response = error_response(current_api_error());
        }
        server_->post([this, number, response] {
            const auto waiting = waiting_.extract(number);
            waiting.mapped()->answer(std::move(*response));
        });
    });
}

HttpResponse Service::error(int status, const std::string &message) {
    return error_response({status, message});
}

void Service::add_headers(const HttpRequest &request, HttpResponse &response) {
    options_.cors.add_headers(request, response);
}

void Service::ended(const HttpRequest &request, const std::string &id,
                    const std::string &log_members, const ExchangeEnd &end) {
    std::string endpoint = "other";
    try {
        endpoint = router_.find(request).path;
    } catch (const ApiError &) { // a path or method that does not exist
    }
    ++metrics_.answers[{endpoint, end.status}];
    if (!options_.log) return;
    JsonWriter line;
    line.begin_object()
        .member("time", utc_text(std::chrono::system_clock::now(), TimeUnit::milliseconds))
        .member("id", id)
        .member("method", request.method.substr(0, 16))
        .member("path", request.path.substr(0, 128))
        .member("status", end.status)
        .member("seconds", end.seconds)
        .member("bytes", end.bytes_sent)
        .member("client_gone", end.is_gone);
    line.end_object();
    std::string text = line.take();
    if (!log_members.empty()) text.insert(text.size() - 1, "," + log_members);
    options_.log(text);
}

} // namespace keel::server
