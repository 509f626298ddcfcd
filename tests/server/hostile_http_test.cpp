// Clients that break the rules of HTTP, or that are slow.
#include "server/test_server.hpp"

#include <chrono>

using namespace keel::server;
using namespace keel::server::test;

namespace {

void check_alive(const TestServer &server) { CHECK(server.get("/health").status == 200); }

} // namespace

TEST_CASE("a request whose length is not certain is refused, and the connection is closed") {
    TestServer server;
    const std::string head = "POST /tokenize HTTP/1.1\r\nHost: x\r\n";
    for (const char *lengths :
         {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
          "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
          "Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: -5\r\n",
          "Content-Length: 5x\r\n", "Content-Length: 99999999999999999999999\r\n",
          "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"}) {
        INFO(lengths);
        RawClient client = server.connect();
        client.send(head + lengths + "\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n");
        error_of(client.read_response(), 400);
        CHECK(client.is_closed());
    }
    for (const char *coding : {"gzip, chunked", "identity", "xchunked"}) {
        RawClient client = server.connect();
        client.send(head + "Transfer-Encoding: " + coding + "\r\n\r\n0\r\n\r\n");
        error_of(client.read_response(), 501);
        CHECK(client.is_closed());
    }
    check_alive(server);
}

TEST_CASE("bytes that are not HTTP get 400") {
    TestServer server;
    for (const std::string &bytes :
         {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
          std::string("GET\r\n\r\n"), std::string("GET / HTTP/1.1\r\nHost x\r\n\r\n"),
          std::string(500, '\0'), std::string("G\x01T / HTTP/1.1\r\n\r\n"),
          std::string("\r\n\r\n\r\n\r\n"),
          std::string("GET / HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n")}) {
        RawClient client = server.connect();
        client.send(bytes);
        error_of(client.read_response(), 400);
        CHECK(client.is_closed());
    }
    error_of(server.send("GET / HTTP/3.0\r\nHost: x\r\n\r\n"), 505);
    error_of(server.send("GET /health HTTP/1.1\r\n\r\n"), 400);
    error_of(server.send("GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
    error_of(server.send("GET health HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    check_alive(server);
}

TEST_CASE("garbage after a request does not harm its answer") {
    TestServer server;
    RawClient client = server.connect();
    client.send(http_request("GET", "/health") + std::string(5000, 'x') + "\r\n\r\n");
    CHECK(client.read_response().status == 200);
    error_of(client.read_response(), 400);
    CHECK(client.is_closed());
}

TEST_CASE("headers and bodies above the limits are refused") {
    TestSetup setup;
    setup.limits.body_bytes = 10'000;
    TestServer server(std::move(setup));
    error_of(server.send("GET /" + std::string(30'000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n"), 431);
    error_of(server.send("GET /health HTTP/1.1\r\nHost: x\r\n" + std::string("A: b\r\n", 6) +
                         "B: " + std::string(40'000, 'b') + "\r\n\r\n"),
             431);
    std::string many = "GET /health HTTP/1.1\r\nHost: x\r\n";
    for (int i = 0; i < 5000; ++i) many += "H: v\r\n";
    error_of(server.send(many + "\r\n"), 431);
    const RawResponse large = server.post("/tokenize", {{"prompt", std::string(20'000, 'a')}});
    CHECK(error_of(large, 413).at("type") == "invalid_request_error");
    std::string chunks = "POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (int i = 0; i < 200; ++i) chunks += "64\r\n" + std::string(100, 'a') + "\r\n";
    error_of(server.send(chunks), 413);
    // an extension of a chunk that never ends
    error_of(server.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                         "5;" +
                         std::string(100'000, 'e')),
             431);
    check_alive(server);
}

TEST_CASE("a request that comes too slowly ends with 408, an idle connection is closed") {
    TestSetup setup;
    setup.limits.header_seconds = 0.2;
    setup.limits.request_seconds = 0.4;
    setup.limits.idle_seconds = 0.6;
    TestServer server(std::move(setup));
    RawClient idle = server.connect(), half_head = server.connect(), half_body = server.connect();
    half_head.send("GET /health HT");
    half_body.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
    error_of(half_head.read_response(), 408);
    CHECK(half_head.is_closed());
    error_of(half_body.read_response(), 408);
    CHECK(half_body.is_closed());
    CHECK(idle.is_closed());
}

TEST_CASE("hundreds of idle connections do not stop other clients") {
    TestServer server;
    std::vector<RawClient> idle;
    for (int i = 0; i < 400; ++i) {
        idle.push_back(server.connect());
        if (i % 2 == 0) idle.back().send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Le");
    }
    check_alive(server);
    CHECK(body_of(server.get("/v1/status")).at("connections") >= 400);
}

TEST_CASE("connections above the limit get 503") {
    TestSetup setup;
    setup.limits.connections = 4;
    TestServer server(std::move(setup));
    std::vector<RawClient> open;
    for (int i = 0; i < 4; ++i) open.push_back(server.connect());
    CHECK(open.back().send(http_request("GET", "/health")));
    CHECK(open.back().read_response().status == 200);
    RawClient more = server.connect();
    CHECK(more.read_response().status == 503);
    open.clear();
    for (int i = 0; i < 100 && server.get("/health").status != 200; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    check_alive(server);
}

TEST_CASE("bodies that are read at once are limited together") {
    TestSetup setup;
    setup.limits.all_body_bytes = 50'000;
    TestServer server(std::move(setup));
    RawClient first = server.connect();
    first.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n" +
               std::string(100'000, ' '));
    RawResponse response;
    for (int i = 0; i < 100 && response.status != 503; ++i)
        response = server.post("/tokenize", {{"prompt", "a"}});
    error_of(response, 503);
    first.close();
    for (int i = 0; i < 100 && response.status != 200; ++i)
        response = server.post("/tokenize", {{"prompt", "a"}});
    CHECK(response.status == 200);
}
