// Answering: whole answers, streams, and the end of a connection.
#include "server/http/client_connection.hpp"

#include <boost/asio/buffer.hpp>

namespace keel::server {
namespace {

using AnswerError = boost::system::error_code;

constexpr double linger_seconds = 2;
constexpr size_t largest_kept_buffer = size_t{64} << 10;

} // namespace

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
    write_deadline_.async_wait([self = shared_from_this(), number](const AnswerError &error) {
        if (error || number != self->write_number_ || !self->is_writing_) return;
        self->lose_client();
        self->close();
    });
    socket_.async_write_some(
        boost::asio::buffer(in_flight_.data() + from, in_flight_.size() - from),
        [self = shared_from_this(), from](const AnswerError &error, size_t bytes) {
            self->on_written(error, from + bytes);
        });
}

void ClientConnection::on_written(const AnswerError &error, size_t upto) {
    if (state_ == State::closed) return;
    if (error) {
        lose_client();
        return close();
    }
    if (upto < in_flight_.size()) return write_some(upto);
    is_writing_ = false;
    in_flight_.clear();
    if (in_flight_.capacity() > largest_kept_buffer) in_flight_.shrink_to_fit();
    write_deadline_.cancel();
    write_next();
}

// The answer is sent.
void ClientConnection::end_answer() {
    if (current_ == 0) return;
    report_end(false);
    if (closes_ || is_draining_) {
        // If the socket were closed while bytes of the client are unread, the system would reset
        // the connection, and the client could lose the answer.
        state_ = State::lingering;
        buffer_.consume(buffer_.size());
        AnswerError ignored;
        socket_.shutdown(Socket::shutdown_send, ignored);
        set_deadline(linger_seconds);
    } else {
        state_ = State::head;
        has_begun_ = buffer_.size() > 0;
        set_deadline(has_begun_ ? host_.limits.header_seconds : host_.limits.idle_seconds);
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
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
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
    AnswerError ignored;
    socket_.close(ignored);
    if (const auto call = std::move(closed_)) call(this);
}

} // namespace keel::server
