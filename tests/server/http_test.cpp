// Connections: several requests, pipelining, chunked bodies, Expect, HEAD, OPTIONS, CORS, keys.
#include "server/test_server.hpp"

using namespace keel::server;
using namespace keel::server::test;

TEST_CASE("a connection serves several requests one after the other") {
    TestServer server;
    RawClient client = server.connect();
    for (int i = 0; i < 3; ++i) {
        REQUIRE(client.send(http_request("GET", "/health")));
        const RawResponse response = client.read_response();
        CHECK(response.status == 200);
        CHECK(response.headers.at("connection") == "keep-alive");
        CHECK_FALSE(response.headers.at("x-request-id").empty());
    }
}

TEST_CASE("pipelined requests are answered in order") {
    TestServer server;
    RawClient client = server.connect();
    const std::string slow = Json{{"prompt", "Once upon a time"}, {"max_tokens", 20}}.dump();
    REQUIRE(client.send(http_request("POST", "/v1/completions", slow) +
                        http_request("GET", "/health") +
                        http_request("POST", "/tokenize", R"({"prompt":"a"})")));
    CHECK(body_of(client.read_response()).at("object") == "text_completion");
    CHECK(body_of(client.read_response()).at("status") == "ok");
    CHECK(body_of(client.read_response()).contains("tokens"));
}

TEST_CASE("a body may come in chunks, in small pieces") {
    TestServer server;
    RawClient client = server.connect();
    const std::string bytes = "POST /tokenize HTTP/1.1\r\nHost: x\r\n"
                              "Transfer-Encoding: chunked\r\n\r\n"
                              "5\r\n{\"pro\r\n8;x=y\r\nmpt\":\"a\"\r\n1\r\n}\r\n0\r\n\r\n";
    for (const char c : bytes) REQUIRE(client.send(std::string_view(&c, 1)));
    CHECK(body_of(client.read_response()).at("tokens").size() >= 1);
    REQUIRE(client.send(http_request("GET", "/health")));
    CHECK(client.read_response().status == 200);
}

TEST_CASE("a client that expects 100 Continue gets it, or the final error") {
    TestSetup setup;
    setup.limits.body_bytes = 1000;
    TestServer server(std::move(setup));
    RawClient client = server.connect();
    const std::string body = R"({"prompt":"a"})";
    client.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n");
    CHECK(client.read_head().status == 100);
    client.send(body);
    CHECK(client.read_response().status == 200);
    client.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                "Content-Length: 5000\r\n\r\n");
    error_of(client.read_response(), 413);
    CHECK(client.is_closed());
    error_of(server.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nExpect: magic\r\n"
                         "Content-Length: 5\r\n\r\n"),
             417);
}

TEST_CASE("HEAD has the headers of GET and no body") {
    TestServer server;
    RawClient client = server.connect();
    client.send(http_request("HEAD", "/health") + http_request("GET", "/health"));
    const RawResponse head = client.read_response(false);
    CHECK(head.status == 200);
    const RawResponse get = client.read_response();
    CHECK(head.headers.at("content-length") == std::to_string(get.body.size()));
}

TEST_CASE("unknown paths and methods are refused with the allowed methods") {
    TestServer server;
    error_of(server.get("/nothing"), 404);
    const RawResponse response = server.get("/v1/completions");
    error_of(response, 405);
    CHECK(response.headers.at("allow") == "POST, OPTIONS");
    const RawResponse options = server.send(http_request("OPTIONS", "/v1/models"));
    CHECK(options.status == 204);
    CHECK(options.headers.at("allow") == "GET, HEAD, OPTIONS");
}

TEST_CASE("paths work with and without /v1") {
    TestServer server;
    CHECK(server.get("/models").status == 200);
    CHECK(server.get("/v1/models/").status == 200);
    CHECK(server.get("/v1/health").status == 200);
    error_of(server.get("/v1/v1/models"), 404);
}

TEST_CASE("HTTP/1.0 gets a stream without chunks that ends with the connection") {
    TestServer server;
    RawClient client = server.connect();
    const std::string body =
        Json{{"prompt", "Once upon"}, {"max_tokens", 3}, {"stream", true}}.dump();
    client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + body);
    const RawResponse response = client.read_response();
    CHECK_FALSE(response.headers.contains("transfer-encoding"));
    CHECK_FALSE(events_of(response).empty());
}

TEST_CASE("keys are compared, and some endpoints are public") {
    TestSetup setup;
    setup.options.keys = ApiKeys::parse("# comment\nfirst-key\n\n second-key \r\n", "keys");
    TestServer server(std::move(setup));
    CHECK(server.get("/health").status == 200);
    const RawResponse refused = server.get("/v1/models");
    CHECK(error_of(refused, 401).at("code") == "invalid_api_key");
    CHECK(refused.headers.contains("www-authenticate"));
    CHECK(server.get("/v1/models", "Authorization: Bearer first-key\r\n").status == 200);
    CHECK(server.get("/v1/models", "authorization: bearer second-key\r\n").status == 200);
    CHECK(server.get("/v1/models", "X-Api-Key: second-key\r\n").status == 200);
    for (const char *header :
         {"Authorization: Bearer \r\n", "Authorization: Bearer first-keyx\r\n", "X-Api-Key: \r\n",
          "Authorization: Basic first-key\r\n", "X-Api-Key: first-ke\r\n"})
        CHECK(server.get("/v1/models", header).status == 401);
    CHECK(server
              .send(http_request("OPTIONS", "/v1/models", "",
                                 "Origin: http://localhost:3000\r\n"
                                 "Access-Control-Request-Method: GET\r\n"))
              .status == 204);
}

TEST_CASE("only allowed web pages may read answers") {
    TestSetup setup;
    setup.options.cors = Cors({"https://chat.example"});
    TestServer server(std::move(setup));
    const auto origin = [&](const std::string &page) {
        const RawResponse response = server.get("/v1/models", "Origin: " + page + "\r\n");
        const auto found = response.headers.find("access-control-allow-origin");
        return found == response.headers.end() ? std::string() : found->second;
    };
    CHECK(origin("https://chat.example") == "https://chat.example");
    CHECK(origin("http://localhost:8080") == "http://localhost:8080");
    CHECK(origin("https://evil.example").empty());
    CHECK(origin("http://localhost.evil.example").empty());
    CHECK(origin("http://localhost:80@evil.example").empty());
    const RawResponse preflight = server.send(
        http_request("OPTIONS", "/v1/chat/completions", "",
                     "Origin: https://chat.example\r\nAccess-Control-Request-Method: POST\r\n"
                     "Access-Control-Request-Headers: authorization, content-type\r\n"));
    CHECK(preflight.status == 204);
    CHECK(preflight.headers.at("access-control-allow-headers") == "authorization, content-type");
    CHECK(server
              .send(http_request("OPTIONS", "/v1/models", "",
                                 "Origin: https://evil.example\r\n"
                                 "Access-Control-Request-Method: GET\r\n"))
              .status == 403);
}

TEST_CASE("a request keeps the id that the client gave it") {
    TestServer server;
    CHECK(server.get("/health", "X-Request-Id: abc-1\r\n").headers.at("x-request-id") == "abc-1");
    CHECK(server.get("/health", "X-Request-Id: a b\"c\r\n").headers.at("x-request-id") != "a b\"c");
}

TEST_CASE("before the model is loaded, only health works") {
    TestSetup setup;
    setup.is_loaded = false;
    TestServer server(std::move(setup));
    CHECK(server.get("/health").status == 200);
    const RawResponse response = server.get("/ready");
    CHECK(error_of(response, 503).at("code") == "loading");
    CHECK(response.headers.contains("retry-after"));
    error_of(server.post("/v1/completions", {{"prompt", "a"}}), 503);
    CHECK(body_of(server.get("/v1/status")).at("status") == "loading");
}
