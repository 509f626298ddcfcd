#pragma once

#include "server/fake_engine.hpp"
#include "server/raw_client.hpp"
#include "server/service/service.hpp"

#include <catch2/catch.hpp>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace keel::server::test {

using Json = nlohmann::json;

inline std::shared_ptr<const Tokenizer> tiny_tokenizer() {
    static const std::shared_ptr<const Tokenizer> tokenizer =
        load_tokenizer(std::string(KEEL_SOURCE_DIR) + "/models/tiny");
    return tokenizer;
}

struct TestSetup {
    ServiceOptions options;
    HttpLimits limits;
    bool is_loaded = true;
};

// A server with a fake engine, in a thread of its own.
class TestServer {
  public:
    explicit TestServer(TestSetup setup = {})
        : service_(with_log(std::move(setup.options))), http_(service_, setup.limits) {
        service_.attach(http_);
        if (setup.is_loaded) service_.set_model(model());
        port_ = http_.listen_tcp("127.0.0.1", 0);
        thread_ = std::thread([this] { http_.run(); });
    }
    ~TestServer() {
        http_.stop();
        thread_.join();
        service_.shut_down();
    }

    uint16_t port() const { return port_; }
    FakeEngine &engine() { return *engine_; }
    HttpServer &http() { return http_; }
    Service &service() { return service_; }
    RawClient connect() const { return RawClient(port_); }

    RawResponse send(std::string_view bytes, bool has_body = true) const {
        RawClient client = connect();
        client.send(bytes);
        return client.read_response(has_body);
    }
    RawResponse post(std::string_view path, const Json &body, std::string_view headers = "") const {
        return send(http_request("POST", path, body.dump(), headers));
    }
    RawResponse get(std::string_view path, std::string_view headers = "") const {
        return send(http_request("GET", path, "", headers));
    }
    std::vector<std::string> log() const {
        const std::lock_guard lock(log_mutex_);
        return log_;
    }

  private:
    ServiceOptions with_log(ServiceOptions options) {
        if (options.model_name.empty()) options.model_name = "tiny";
        options.version = "test";
        options.log = [this](const std::string &line) {
            const std::lock_guard lock(log_mutex_);
            log_.push_back(line);
        };
        return options;
    }
    std::shared_ptr<const ServedModel> model() {
        auto model = std::make_shared<ServedModel>();
        model->engine = engine_;
        model->tokenizer = tiny_tokenizer();
        model->chat.emplace(*ChatTemplate::by_name("chatml"), *model->tokenizer);
        return model;
    }

    mutable std::mutex log_mutex_;
    std::vector<std::string> log_;
    std::shared_ptr<FakeEngine> engine_ = std::make_shared<FakeEngine>(tiny_tokenizer());
    Service service_;
    HttpServer http_;
    uint16_t port_ = 0;
    std::thread thread_;
};

// The body of an answer with the status 200.
inline Json body_of(const RawResponse &response) {
    INFO(response.body);
    REQUIRE(response.status == 200);
    REQUIRE(response.is_whole);
    return Json::parse(response.body);
}

// The error of an answer. Checks its form.
inline Json error_of(const RawResponse &response, int status) {
    INFO(response.body);
    REQUIRE(response.status == status);
    const Json error = Json::parse(response.body).at("error");
    CHECK_FALSE(error.at("message").get<std::string>().empty());
    CHECK(error.contains("type"));
    CHECK(error.contains("param"));
    CHECK(error.contains("code"));
    return error;
}

// The data of each event of a stream, without [DONE]. Checks the form of the stream.
inline std::vector<Json> events_of(const RawResponse &response) {
    REQUIRE(response.status == 200);
    CHECK(response.headers.at("content-type").starts_with("text/event-stream"));
    std::vector<Json> events;
    std::string_view rest = response.body;
    bool is_done = false;
    while (!rest.empty()) {
        const size_t end = rest.find("\n\n");
        REQUIRE(end != std::string_view::npos);
        const std::string_view event = rest.substr(0, end);
        rest.remove_prefix(end + 2);
        REQUIRE_FALSE(is_done);
        if (event.starts_with(":")) continue;
        REQUIRE(event.starts_with("data: "));
        is_done = event == "data: [DONE]";
        if (!is_done) events.push_back(Json::parse(event.substr(6)));
    }
    CHECK(is_done);
    return events;
}

} // namespace keel::server::test
