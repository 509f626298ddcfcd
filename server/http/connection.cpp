#include "server/http/connection.hpp"

#include "server/http/request_reader.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <atomic>
#include <chrono>
#include <fmt/format.h>
#include <random>

namespace keel::server {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;
using SteadyClock = std::chrono::steady_clock;

constexpr double linger_seconds = 2;
constexpr size_t linger_bytes = size_t{4} << 20;
constexpr size_t body_piece = size_t{64} << 10, head_piece = size_t{4} << 10;

std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// The client's own id if it is short and printable, else a new one.
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

class ClientConnection final : public Connection,
                               public std::enable_shared_from_this<ClientConnection> {
  public:
    ClientConnection(Socket socket, ConnectionHost &host, std::function<void(Connection *)> closed)
        : socket_(std::move(socket)), host_(host), closed_(std::move(closed)),
          deadline_(socket_.get_executor()), write_deadline_(socket_.get_executor()),
          reader_(host.limits) {}

    void begin() {
        set_deadline(host_.limits.idle_seconds);
        read_more();
    }
    void drain() override {
        is_draining_ = true;
        if (state_ == State::head && buffer_.size() == 0) close();
    }
    void close() override;

    // For the exchange with this number. Calls for an earlier exchange have no effect.
    bool is_current(uint64_t exchange) const { return exchange != 0 && exchange == current_; }
    void answer(HttpResponse response);
    void begin_stream(HttpResponse head);
    void send(std::string_view bytes);
    void end_stream(bool is_complete);
    void on_gone(std::function<void()> call) { on_gone_ = std::move(call); }

  private:
    enum class State {
        head,      // waits for a request, or reads its headers
        body,      // reads the body
        answering, // the request is complete, its answer is not
        lingering, // the answer is sent; the connection waits until the client closes
        closed,
    };

    void set_deadline(double seconds);
    void on_deadline();
    void read_more();
    void on_read(const ErrorCode &error, size_t bytes);
    void advance();
    void begin_body();
    void begin_exchange();
    void begin_request();
    void refuse(HttpResponse response);
    void write(std::string bytes);
    void write_next();
    void write_some(size_t from);
    void on_written(const ErrorCode &error, size_t upto);
    void end_answer();
    void lose_client();
    void report_end(bool is_gone);
    void set_body_bytes(size_t bytes);

    Socket socket_;
    ConnectionHost &host_;
    std::function<void(Connection *)> closed_;
    asio::steady_timer deadline_, write_deadline_;
    uint64_t deadline_number_ = 0, write_number_ = 0;
    boost::beast::flat_buffer buffer_;
    RequestReader reader_;
    State state_ = State::head;
    bool is_reading_ = false, is_writing_ = false, is_draining_ = false;
    size_t lingered_ = 0, body_bytes_ = 0;

    // The request that is answered.
    std::shared_ptr<Exchange> exchange_;
    uint64_t current_ = 0, next_exchange_ = 0;
    std::function<void()> on_gone_;
    SteadyClock::time_point started_{};
    int status_ = 0;
    size_t sent_ = 0;
    BodyLength length_ = BodyLength::known;
    bool closes_ = false;      // the connection is closed after the answer
    bool is_complete_ = false; // the last byte of the answer is in `unsent_` or was sent
    std::string unsent_, in_flight_;
};

class ConnectionExchange final : public Exchange {
  public:
    ConnectionExchange(std::shared_ptr<ClientConnection> connection, uint64_t number,
                       HttpRequest request)
        : connection_(std::move(connection)), number_(number), request_(std::move(request)),
          id_(request_id(request_)) {}

    const HttpRequest &request() const override { return request_; }
    const std::string &id() const override { return id_; }
    void answer(HttpResponse response) override {
        if (!is_gone()) connection_->answer(std::move(response));
    }
    void begin_stream(HttpResponse head) override {
        if (!is_gone()) connection_->begin_stream(std::move(head));
    }
    void send(std::string_view bytes) override {
        if (!is_gone() && !bytes.empty()) connection_->send(bytes);
    }
    void end_stream(bool is_complete) override {
        if (!is_gone()) connection_->end_stream(is_complete);
    }
    bool is_gone() const override { return !connection_->is_current(number_); }
    void on_gone(std::function<void()> call) override {
        if (!is_gone()) connection_->on_gone(std::move(call));
    }

  private:
    std::shared_ptr<ClientConnection> connection_;
    uint64_t number_;
    HttpRequest request_;
    std::string id_;
};

void ClientConnection::set_deadline(double seconds) {
    const uint64_t number = ++deadline_number_;
    deadline_.expires_after(milliseconds(seconds));
    deadline_.async_wait([self = shared_from_this(), number](const ErrorCode &error) {
        if (!error && number == self->deadline_number_) self->on_deadline();
    });
}

void ClientConnection::on_deadline() {
    if (state_ == State::answering || state_ == State::closed) return;
    const bool has_begun = state_ == State::body || (state_ == State::head && buffer_.size() > 0);
    if (!has_begun) return close();
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
    const bool is_first = state_ == State::head && buffer_.size() == 0;
    buffer_.commit(bytes);
    if (is_first) set_deadline(host_.limits.header_seconds);
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
    ++deadline_number_; // no deadline while the server computes
    started_ = SteadyClock::now();
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

void ClientConnection::answer(HttpResponse response) {
    const HttpRequest &request = exchange_->request();
    closes_ = closes_ || response.close || is_draining_;
    host_.handler.add_headers(request, response);
    response.headers.emplace_back("x-request-id", exchange_->id());
    status_ = response.status;
    std::string bytes = response_head(response, BodyLength::known, closes_);
    if (request.method != "HEAD") bytes += response.body;
    is_complete_ = true;
    write(std::move(bytes));
}

void ClientConnection::begin_stream(HttpResponse head) {
    const HttpRequest &request = exchange_->request();
    length_ = request.is_old ? BodyLength::close : BodyLength::chunks;
    closes_ = closes_ || head.close || is_draining_ || length_ == BodyLength::close;
    host_.handler.add_headers(request, head);
    head.headers.emplace_back("x-request-id", exchange_->id());
    status_ = head.status;
    write(response_head(head, length_, closes_));
}

void ClientConnection::send(std::string_view bytes) {
    if (unsent_.size() + in_flight_.size() + bytes.size() > host_.limits.unsent_bytes) {
        // the client reads too slowly
        lose_client();
        return close();
    }
    write(length_ == BodyLength::chunks ? http_chunk(bytes) : std::string(bytes));
}

void ClientConnection::end_stream(bool is_complete) {
    if (!is_complete) closes_ = true;
    is_complete_ = true;
    write(is_complete && length_ == BodyLength::chunks ? std::string(http_last_chunk)
                                                       : std::string());
}

void ClientConnection::write(std::string bytes) {
    sent_ += bytes.size();
    if (unsent_.empty()) {
        unsent_ = std::move(bytes);
    } else {
        unsent_ += bytes;
    }
    if (!is_writing_) write_next();
}

void ClientConnection::write_next() {
    if (unsent_.empty()) {
        if (is_complete_) end_answer();
        return;
    }
    in_flight_ = std::move(unsent_);
    unsent_.clear();
    is_writing_ = true;
    write_some(0);
}

// Writes the rest of `in_flight_`. Each piece that the client takes restarts the deadline.
void ClientConnection::write_some(size_t from) {
    const uint64_t number = ++write_number_;
    write_deadline_.expires_after(milliseconds(host_.limits.write_seconds));
    write_deadline_.async_wait([self = shared_from_this(), number](const ErrorCode &error) {
        if (error || number != self->write_number_ || !self->is_writing_) return;
        self->lose_client();
        self->close();
    });
    socket_.async_write_some(
        asio::buffer(in_flight_.data() + from, in_flight_.size() - from),
        [self = shared_from_this(), from](const ErrorCode &error, size_t bytes) {
            self->on_written(error, from + bytes);
        });
}

void ClientConnection::on_written(const ErrorCode &error, size_t upto) {
    if (state_ == State::closed) return;
    if (error) {
        lose_client();
        return close();
    }
    if (upto < in_flight_.size()) return write_some(upto);
    is_writing_ = false;
    in_flight_.clear();
    if (in_flight_.capacity() > body_piece) in_flight_.shrink_to_fit();
    write_deadline_.cancel();
    write_next();
}

// The answer is sent.
void ClientConnection::end_answer() {
    if (current_ == 0) return;
    report_end(false);
    if (closes_) {
        // If the socket were closed while bytes of the client are unread, the system would reset
        // the connection, and the client could lose the answer.
        state_ = State::lingering;
        buffer_.consume(buffer_.size());
        ErrorCode ignored;
        socket_.shutdown(Socket::shutdown_send, ignored);
        set_deadline(linger_seconds);
    } else {
        state_ = State::head;
        set_deadline(buffer_.size() > 0 ? host_.limits.header_seconds : host_.limits.idle_seconds);
        advance();
    }
    read_more();
}

void ClientConnection::report_end(bool is_gone) {
    const std::shared_ptr<Exchange> exchange = std::move(exchange_);
    exchange_.reset();
    on_gone_ = nullptr;
    current_ = 0;
    set_body_bytes(0);
    const double seconds = std::chrono::duration<double>(SteadyClock::now() - started_).count();
    host_.handler.ended(exchange->request(), exchange->id(), exchange->log_members,
                        {status_, sent_, seconds, is_gone});
}

// The client has gone before its answer was complete.
void ClientConnection::lose_client() {
    if (current_ == 0) return;
    const auto call = std::move(on_gone_);
    report_end(true);
    if (call) call();
}

void ClientConnection::set_body_bytes(size_t bytes) {
    host_.body_bytes = host_.body_bytes - body_bytes_ + bytes;
    body_bytes_ = bytes;
}

void ClientConnection::close() {
    if (state_ == State::closed) return;
    lose_client();
    state_ = State::closed;
    set_body_bytes(0);
    deadline_.cancel();
    write_deadline_.cancel();
    ErrorCode ignored;
    socket_.close(ignored);
    if (const auto call = std::move(closed_)) call(this);
}

} // namespace

std::shared_ptr<Connection> Connection::start(Socket socket, ConnectionHost &host,
                                              std::function<void(Connection *)> closed) {
    auto connection =
        std::make_shared<ClientConnection>(std::move(socket), host, std::move(closed));
    connection->begin();
    return connection;
}

} // namespace keel::server
