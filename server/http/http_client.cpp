#include "server/http/http_client.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

namespace keel::server {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using HostPort = std::pair<std::string, std::string>;

constexpr uint64_t largest_answer = uint64_t{64} << 20;

HostPort split_url(const std::string &url) {
    std::string rest = url;
    constexpr std::string_view scheme = "http://";
    if (rest.starts_with(scheme)) rest.erase(0, scheme.size());
    while (rest.ends_with('/')) rest.pop_back();
    const size_t colon = rest.rfind(':');
    if (rest.find('/') != std::string::npos || colon == std::string::npos || colon == 0)
        throw_error(ErrorKind::usage, "expected http://HOST:PORT or unix:PATH, found {}",
                    quote_text(url));
    std::string host = rest.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
        host = host.substr(1, host.size() - 2);
    return {host, rest.substr(colon + 1)};
}

// One connection. Each operation ends with an error after the time limit.
template <typename Protocol> class Client {
  public:
    explicit Client(std::chrono::milliseconds limit) : limit_(limit) {}

    template <typename Endpoints> void connect(const Endpoints &to) {
        wait([&] { return stream_.async_connect(to, asio::use_future); });
    }

    HttpAnswer get(const std::string &host, const std::string &path, const std::string &key) {
        beast_http::request<beast_http::empty_body> request(beast_http::verb::get, path, 11);
        request.set(beast_http::field::host, host);
        request.set(beast_http::field::connection, "close");
        if (!key.empty()) request.set(beast_http::field::authorization, "Bearer " + key);
        wait([&] { return beast_http::async_write(stream_, request, asio::use_future); });
        boost::beast::flat_buffer buffer;
        beast_http::response_parser<beast_http::string_body> parser;
        parser.body_limit(largest_answer);
        wait([&] { return beast_http::async_read(stream_, buffer, parser, asio::use_future); });
        return {static_cast<int>(parser.get().result_int()), std::move(parser.get().body())};
    }

  private:
    // Runs the operation that `start` starts.
    template <typename Start> void wait(const Start &start) {
        stream_.expires_after(limit_);
        auto done = start();
        io_.restart();
        io_.run();
        done.get();
    }

    asio::io_context io_;
    boost::beast::basic_stream<Protocol> stream_{io_};
    std::chrono::milliseconds limit_;
};

} // namespace

HttpAnswer http_get(const std::string &url, const std::string &path, const std::string &key,
                    std::chrono::milliseconds limit) {
    try {
        constexpr std::string_view unix_scheme = "unix:";
        if (url.starts_with(unix_scheme)) {
            using Local = asio::local::stream_protocol;
            Client<Local> client(limit);
            client.connect(Local::endpoint(url.substr(unix_scheme.size())));
            return client.get("localhost", path, key);
        }
        const HostPort to = split_url(url);
        asio::io_context io;
        Client<asio::ip::tcp> client(limit);
        client.connect(asio::ip::tcp::resolver(io).resolve(to.first, to.second));
        return client.get(to.first, path, key);
    } catch (const boost::system::system_error &e) {
        throw_error(ErrorKind::runtime, "{}: no answer: {}; check that the server runs there",
                    printable(url, 200), e.code().message());
    }
}

} // namespace keel::server
