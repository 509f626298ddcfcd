// Clients that go, or that read slowly: their requests are cancelled.
#include "server/test_server.hpp"

#include <csignal>

using namespace keel::server;
using namespace keel::server::test;

namespace {

std::string request(bool stream, int tokens = 200) {
    return http_request(
        "POST", "/v1/completions",
        Json{{"prompt", "Once upon a time"}, {"max_tokens", tokens}, {"stream", stream}}.dump());
}

bool wait_until(const std::function<bool()> &is_true) {
    for (int i = 0; i < 500; ++i) {
        if (is_true()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
}

} // namespace

TEST_CASE("a client that goes while its request waits frees the seat") {
    for (const bool stream : {false, true}) {
        TestServer server;
        server.engine().hold(true);
        RawClient client = server.connect();
        client.send(request(stream));
        REQUIRE(server.engine().wait_for(1));
        client.close();
        CHECK(server.engine().wait_for(0));
        CHECK(server.engine().stats().cancelled == 1);
        CHECK(wait_until([&] { return server.http().connections() == 0; }));
    }
}

TEST_CASE("a client that goes in the middle of a stream frees the seat") {
    TestServer server;
    RawClient client = server.connect();
    client.send(request(true, 1'000'000));
    CHECK(client.read_until("data: ").find("200 OK") != std::string::npos);
    CHECK(server.engine().wait_for(1));
    client.close();
    CHECK(server.engine().wait_for(0));
    CHECK(body_of(server.get("/v1/status")).at("answers_in_progress") == 0);
}

TEST_CASE("a client that goes with several prompts cancels all of them") {
    TestServer server;
    server.engine().hold(true);
    RawClient client = server.connect();
    client.send(http_request("POST", "/v1/completions",
                             R"({"prompt":["One","Two","Three"],"max_tokens":10,"n":2})"));
    REQUIRE(server.engine().wait_for(3));
    client.close();
    CHECK(server.engine().wait_for(0));
}

TEST_CASE("a client that goes after its answer cancels nothing") {
    TestServer server;
    {
        RawClient client = server.connect();
        client.send(request(true, 3));
        client.read_until("[DONE]");
    }
    {
        RawClient client = server.connect();
        client.send(request(false, 3));
        CHECK(client.read_response().status == 200);
    }
    CHECK(server.engine().stats().cancelled == 0);
}

TEST_CASE("a client that reads a stream too slowly is dropped, others go on") {
    TestSetup setup;
    setup.limits.unsent_bytes = 100'000;
    setup.limits.socket_bytes = 8192;
    TestServer server(std::move(setup));
    RawClient slow = server.connect();
    slow.set_receive_buffer(4096);
    slow.send(request(true, 1'000'000));
    CHECK(server.engine().wait_for(1));
    CHECK(body_of(server.post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 5}}))
              .at("usage")
              .at("completion_tokens") == 5);
    CHECK(wait_until([&] { return server.engine().stats().cancelled == 1; }));
}

TEST_CASE("a client that takes no byte of an answer is dropped after a time") {
    TestSetup setup;
    setup.limits.write_seconds = 0.3;
    setup.limits.socket_bytes = 8192;
    setup.limits.unsent_bytes = size_t{1} << 40;
    TestServer server(std::move(setup));
    RawClient slow = server.connect();
    slow.set_receive_buffer(4096);
    slow.send(request(true, 1'000'000));
    CHECK(server.engine().wait_for(1));
    CHECK(wait_until([&] { return server.engine().stats().cancelled == 1; }));
}

TEST_CASE("draining answers running requests and refuses new ones") {
    TestServer server;
    server.engine().hold(true);
    RawClient running = server.connect(), waiting = server.connect();
    running.send(request(false, 5));
    waiting.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Le");
    REQUIRE(server.engine().wait_for(1));
    std::atomic<bool> is_done{false};
    server.http().post([&] {
        server.http().drain();
        server.service().drain(10, [&] { is_done = true; });
    });
    CHECK(wait_until([&] {
        try {
            server.connect();
            return false;
        } catch (const std::runtime_error &) {
            return true;
        }
    }));
    waiting.send("ngth: 2\r\n\r\n{}");
    const RawResponse refused = waiting.read_response();
    error_of(refused, 503);
    CHECK(refused.headers.at("connection") == "close");
    CHECK_FALSE(is_done);
    server.engine().hold(false);
    CHECK(running.read_response().status == 200);
    CHECK(running.is_closed());
    waiting.close();
    CHECK(wait_until([&] { return is_done.load(); }));
}

TEST_CASE("requests that do not end before the end of draining get an error") {
    TestServer server;
    server.engine().hold(true);
    RawClient plain = server.connect(), stream = server.connect();
    plain.send(request(false));
    stream.send(request(true));
    REQUIRE(server.engine().wait_for(2));
    std::atomic<bool> is_done{false};
    server.http().post([&] {
        server.http().drain();
        server.service().drain(0.2, [&] { is_done = true; });
    });
    error_of(plain.read_response(), 503);
    const RawResponse cut = stream.read_response();
    CHECK(cut.status == 200);
    CHECK_FALSE(cut.is_whole);
    CHECK(cut.body.find("\"error\"") != std::string::npos);
    CHECK(wait_until([&] { return is_done.load(); }));
    CHECK(server.engine().wait_for(0));
}

TEST_CASE("a server that stops during a stream does not use its engine afterwards") {
    std::shared_ptr<const std::atomic<int>> late;
    std::optional<RawClient> client;
    {
        TestServer server;
        late = server.engine().late_cancels();
        server.engine().hold(true);
        client.emplace(server.connect());
        REQUIRE(client->send(request(true)));
        REQUIRE(client->read_until("\r\n").find("200 OK") != std::string::npos);
    }
    CHECK(*late == 0);
}
