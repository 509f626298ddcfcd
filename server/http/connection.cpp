// Reading: requests, deadlines, and the moment at which a client goes.
#include "server/http/client_connection.hpp"

#include <atomic>
#include <fmt/format.h>
#include <random>

namespace keel::server {
namespace {

using ErrorCode = boost::system::error_code;

constexpr size_t linger_bytes = size_t{4} << 20;
constexpr size_t body_piece = size_t{64} << 10, head_piece = size_t{4} << 10;

} // namespace

std::string request_id(const HttpRequest &request) {
    if (const auto given = request.header("X-Request-Id"); given && !given->empty()) {
        const bool is_plain = given->size() <= 64 &&
                              given->find_first_not_of(
                                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "-_.:") == std::string_view::npos;
        if (is_plain) return std::string(*given);
    }
    static const uint64_t start = (uint64_t{std::random_device{}()} << 32) | std::random_device{}();
    static std::atomic<uint64_t> count{0};
    return fmt::format("req-{:016x}-{:x}", start, ++count);
}

void ClientConnection::set_deadline(double seconds) {
    const uint64_t number = ++deadline_number_;
    deadline_.expires_after(milliseconds(seconds));
    deadline_.async_wait([self = shared_from_this(), number](const ErrorCode &error) {
        if (!error && number == self->deadline_number_) self->on_deadline();
    });
}

void ClientConnection::on_deadline() {
    if (state_ == State::answering || state_ == State::closed) return;
    if (!has_begun_) return close();
    refuse(host_.handler.error(
        408, "the request was not complete in time; send it faster, or raise the server's limit"));
}

void ClientConnection::read_more() {
    if (is_reading_ || state_ == State::closed) return;
    if (state_ == State::answering && buffer_.size() >= host_.limits.ahead_bytes) return;
    if (buffer_.size() == 0 && state_ != State::body) buffer_.shrink_to_fit();
    is_reading_ = true;
    socket_.async_read_some(buffer_.prepare(state_ == State::body ? body_piece : head_piece),
                            [self = shared_from_this()](const ErrorCode &error, size_t bytes) {
                                self->on_read(error, bytes);
                            });
}

void ClientConnection::on_read(const ErrorCode &error, size_t bytes) {
    is_reading_ = false;
    if (state_ == State::closed) return;
    if (error) {
        if (state_ == State::answering) lose_client();
        return close();
    }
    if (state_ == State::lingering) {
        lingered_ += bytes;
        if (lingered_ > linger_bytes) return close();
        return read_more();
    }
    buffer_.commit(bytes);
    if (state_ == State::head && !has_begun_) {
        has_begun_ = true;
        set_deadline(host_.limits.header_seconds);
    }
    advance();
    read_more();
}

// Takes the bytes of the buffer in, as far as the state allows.
void ClientConnection::advance() {
    while (buffer_.size() > 0 && (state_ == State::head || state_ == State::body)) {
        const RequestReader::Step step = reader_.read(buffer_);
        if (state_ == State::body) set_body_bytes(reader_.body_bytes());
        if (step == RequestReader::Step::failed) {
            HttpResponse response =
                host_.handler.error(reader_.error().status, reader_.error().text);
            response.close = true;
            return refuse(std::move(response));
        }
        if (step == RequestReader::Step::needs_more) return;
        if (step == RequestReader::Step::head) begin_body();
        if (step == RequestReader::Step::complete && state_ == State::body) begin_request();
    }
}

// The headers are complete.
void ClientConnection::begin_body() {
    state_ = State::body;
    set_deadline(host_.limits.request_seconds);
    if (auto response = host_.handler.refuse(reader_.head())) return refuse(std::move(*response));
    if (host_.body_bytes > host_.limits.all_body_bytes)
        return refuse(host_.handler.error(
            503, "the server reads too many large requests at once; try again later"));
    if (reader_.is_complete()) return begin_request();
    const auto expects = reader_.head().header("Expect");
    if (!expects) return;
    if (!is_same_name(*expects, "100-continue"))
        return refuse(host_.handler.error(417, "Expect: the only expectation that the server knows "
                                               "is 100-continue"));
    if (!reader_.head().is_old) write("HTTP/1.1 100 Continue\r\n\r\n");
}

// Makes the exchange of the request that the reader has.
void ClientConnection::begin_exchange() {
    HttpRequest request = reader_.take();
    set_body_bytes(request.body.size());
    state_ = State::answering;
    has_begun_ = false;
    ++deadline_number_; // no deadline while the server computes
    started_ = std::chrono::steady_clock::now();
    current_ = ++next_exchange_;
    status_ = 0;
    sent_ = 0;
    is_complete_ = false;
    closes_ = !request.can_stay || is_draining_;
    exchange_ =
        std::make_shared<ConnectionExchange>(shared_from_this(), current_, std::move(request));
}

void ClientConnection::begin_request() {
    begin_exchange();
    host_.handler.handle(exchange_);
}

// Answers a request without handling it. If it was not read to the end, the connection is closed.
void ClientConnection::refuse(HttpResponse response) {
    response.close = response.close || !reader_.is_complete();
    begin_exchange();
    answer(std::move(response));
}

std::shared_ptr<Connection> Connection::start(Socket socket, ConnectionHost &host,
                                              std::function<void(Connection *)> closed) {
    auto connection =
        std::make_shared<ClientConnection>(std::move(socket), host, std::move(closed));
    connection->begin();
    return connection;
}

} // namespace keel::server
