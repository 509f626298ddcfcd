#include "server/http/request_reader.hpp"

#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <fmt/format.h>

namespace keel::server {
namespace {

namespace http = boost::beast::http;
using BeastParser = http::request_parser<http::string_body>;

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

} // namespace

struct RequestReader::Parser : BeastParser {
    explicit Parser(const HttpLimits &limits) {
        header_limit(static_cast<std::uint32_t>(limits.header_bytes));
        body_limit(limits.body_bytes);
        eager(false); // stop after the headers
    }
};

RequestReader::RequestReader(const HttpLimits &limits)
    : limits_(limits), parser_(std::make_unique<Parser>(limits)) {}
RequestReader::~RequestReader() = default;

bool RequestReader::is_complete() const { return has_head_ && parser_->is_done(); }
size_t RequestReader::body_bytes() const { return parser_->get().body().size(); }

RequestReader::Step RequestReader::fail(int status, std::string text) {
    error_ = {status, std::move(text)};
    return Step::failed;
}

RequestReader::Step RequestReader::fail_with(const boost::system::error_code &error) {
    if (error == http::error::body_limit)
        return fail(413, fmt::format("the body is too large: expected at most {} bytes",
                                     limits_.body_bytes));
    if (error == http::error::header_limit)
        return fail(431, fmt::format("the headers are too large: expected at most {} bytes",
                                     limits_.header_bytes));
    if (error == http::error::bad_version)
        return fail(505, "expected the version HTTP/1.0 or HTTP/1.1");
    if (error == http::error::bad_transfer_encoding || error == http::error::bad_content_length)
        return fail(400, "the length of the body is not certain: expected one header, either "
                         "Content-Length with one number or Transfer-Encoding: chunked");
    return fail(400, fmt::format("not valid HTTP: {}", error.message()));
}

RequestReader::Step RequestReader::read(boost::beast::flat_buffer &buffer) {
    while (buffer.size() > 0) {
        if (is_complete()) return Step::complete;
        boost::system::error_code error;
        const size_t used = parser_->put(buffer.data(), error);
        buffer.consume(used);
        if (error == http::error::need_more) {
            if (used > 0) continue;
            // the beginning of a header or of a chunk, without its end
            if (buffer.size() >= limits_.header_bytes) return fail_with(http::error::header_limit);
            return Step::needs_more;
        }
        if (error) {
            take_head();
            return fail_with(error);
        }
        if (!has_head_ && parser_->is_header_done()) {
            has_head_ = true;
            take_head();
            check_head();
            return error_.text.empty() ? Step::head : Step::failed;
        }
    }
    return is_complete() ? Step::complete : Step::needs_more;
}

void RequestReader::take_head() {
    const auto &message = parser_->get();
    head_ = {};
    head_.method = std::string(view(message.method_string()));
    std::string_view target = view(message.target());
    // the absolute form, which proxies use: http://host/path
    if (const size_t scheme = target.find("://");
        scheme != std::string_view::npos && target[0] != '/') {
        const size_t path = target.find('/', scheme + 3);
        target = path == std::string_view::npos ? std::string_view("/") : target.substr(path);
    }
    const size_t mark = target.find('?');
    head_.path = std::string(target.substr(0, mark));
    if (mark != std::string_view::npos) head_.query = std::string(target.substr(mark + 1));
    head_.is_old = message.version() < 11;
    head_.can_stay = has_head_ && parser_->keep_alive();
    for (const auto &field : message)
        head_.headers.emplace_back(view(field.name_string()), view(field.value()));
}

void RequestReader::check_head() {
    size_t hosts = 0;
    for (const auto &header : head_.headers) {
        if (is_same_name(header.first, "Host")) ++hosts;
        if (is_same_name(header.first, "Transfer-Encoding") &&
            !is_same_name(header.second, "chunked")) {
            fail(501, "Transfer-Encoding: the server knows only 'chunked'");
            return;
        }
    }
    if (hosts > 1 || (hosts == 0 && !head_.is_old))
        fail(400, fmt::format("expected one Host header, found {}", hosts));
    else if (head_.path.empty() || (head_.path[0] != '/' && head_.path != "*"))
        fail(400, "the request's target: expected a path that begins with '/'");
}

HttpRequest RequestReader::take() {
    HttpRequest request = std::move(head_);
    request.body = std::move(parser_->get().body());
    parser_ = std::make_unique<Parser>(limits_);
    head_ = {};
    error_ = {};
    has_head_ = false;
    return request;
}

} // namespace keel::server
