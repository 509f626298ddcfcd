// The client of `keel serve --status`.
#include "server/http/http_client.hpp"

#include "server/test_server.hpp"
#include "support/error_text.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

using namespace keel;
using namespace keel::server;
using namespace keel::server::test;
using keel::test::error_text;

TEST_CASE("a page of a server is read") {
    TestServer server;
    const HttpAnswer answer =
        http_get("http://127.0.0.1:" + std::to_string(server.port()) + "/", "/health", "");
    CHECK(answer.status == 200);
    CHECK(Json::parse(answer.body).at("status") == "ok");
}

TEST_CASE("a server that accepts a connection and sends nothing is an error after the limit") {
    namespace asio = boost::asio;
    asio::io_context io;
    asio::ip::tcp::acceptor silent(io, {asio::ip::make_address("127.0.0.1"), 0});
    const std::string url = "127.0.0.1:" + std::to_string(silent.local_endpoint().port());
    const std::string error =
        error_text([&] { http_get(url, "/v1/status", "", std::chrono::milliseconds(50)); },
                   ErrorKind::runtime);
    CHECK(error.find(url + ": no answer") != std::string::npos);
}

TEST_CASE("a URL without a port is refused") {
    CHECK(error_text([] { http_get("localhost", "/", ""); }, ErrorKind::usage).find("HOST:PORT") !=
          std::string::npos);
}
