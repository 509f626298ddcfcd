#pragma once

#include "server/http/connection.hpp"
#include "server/http/request_reader.hpp"

#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include <chrono>

namespace keel::server {

inline std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
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
        if (state_ == State::head && !has_begun_) close();
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
    void on_read(const boost::system::error_code &error, size_t bytes);
    void advance();
    void begin_body();
    void begin_exchange();
    void begin_request();
    void refuse(HttpResponse response);
    void write(std::string bytes);
    void write_next();
    void write_some(size_t from);
    void on_written(const boost::system::error_code &error, size_t upto);
    void end_answer();
    void lose_client();
    void report_end(bool is_gone);
    void set_body_bytes(size_t bytes);

    Socket socket_;
    ConnectionHost &host_;
    std::function<void(Connection *)> closed_;
    boost::asio::steady_timer deadline_, write_deadline_;
    uint64_t deadline_number_ = 0, write_number_ = 0;
    boost::beast::flat_buffer buffer_;
    RequestReader reader_;
    State state_ = State::head;
    bool has_begun_ = false; // a byte of the next request has arrived
    bool is_reading_ = false, is_writing_ = false, is_draining_ = false;
    size_t lingered_ = 0, body_bytes_ = 0;

    // The request that is answered.
    std::shared_ptr<Exchange> exchange_;
    uint64_t current_ = 0, next_exchange_ = 0;
    std::function<void()> on_gone_;
    std::chrono::steady_clock::time_point started_{};
    int status_ = 0;
    size_t sent_ = 0;
    BodyLength length_ = BodyLength::known;
    bool closes_ = false;      // the connection is closed after the answer
    bool is_complete_ = false; // the last byte of the answer is in `unsent_` or was sent
    std::string unsent_, in_flight_;
};

// The client's own id of a request if it is short and printable, else a new one.
std::string request_id(const HttpRequest &request);

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

} // namespace keel::server
