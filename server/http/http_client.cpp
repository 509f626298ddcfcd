#include "server/http/http_client.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <sys/socket.h>
#include <sys/time.h>

namespace keel::server {
namespace {

namespace beast_http = boost::beast::http;
using HostPort = std::pair<std::string, std::string>;

constexpr time_t answer_seconds = 10;
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

template <typename AnySocket>
HttpAnswer exchange(AnySocket &socket, const std::string &host, const std::string &path,
                    const std::string &key) {
    const timeval limit{answer_seconds, 0};
    ::setsockopt(socket.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    beast_http::request<beast_http::empty_body> request(beast_http::verb::get, path, 11);
    request.set(beast_http::field::host, host);
    request.set(beast_http::field::connection, "close");
    if (!key.empty()) request.set(beast_http::field::authorization, "Bearer " + key);
    beast_http::write(socket, request);
    boost::beast::flat_buffer buffer;
    beast_http::response_parser<beast_http::string_body> parser;
    parser.body_limit(largest_answer);
    beast_http::read(socket, buffer, parser);
    return {static_cast<int>(parser.get().result_int()), std::move(parser.get().body())};
}

} // namespace

HttpAnswer http_get(const std::string &url, const std::string &path, const std::string &key) {
    try {
        boost::asio::io_context io;
        constexpr std::string_view unix_scheme = "unix:";
        if (url.starts_with(unix_scheme)) {
            boost::asio::local::stream_protocol::socket socket(io);
            socket.connect(url.substr(unix_scheme.size()));
            return exchange(socket, "localhost", path, key);
        }
        const HostPort to = split_url(url);
        boost::asio::ip::tcp::resolver resolver(io);
        boost::asio::ip::tcp::socket socket(io);
        boost::asio::connect(socket, resolver.resolve(to.first, to.second));
        return exchange(socket, to.first, path, key);
    } catch (const boost::system::system_error &e) {
        throw_error(ErrorKind::runtime, "{}: no answer: {}; check that the server runs there",
                    printable(url, 200), e.code().message());
    }
}

} // namespace keel::server
