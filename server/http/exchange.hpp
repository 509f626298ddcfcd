#pragma once

#include "server/http/message.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace keel::server {

// One request and its answer. The answer is either one call of answer(), or begin_stream(), any
// number of send(), and end_stream(). After the client has gone, these calls have no effect.
// All members must be called in the I/O thread.
class Exchange {
  public:
    virtual ~Exchange() = default;

    virtual const HttpRequest &request() const = 0;
    // The request's id. It is the client's header X-Request-Id, or a new id.
    virtual const std::string &id() const = 0;

    virtual void answer(HttpResponse response) = 0;
    // Sends the head of an answer whose length is not known. The body of `head` is ignored.
    virtual void begin_stream(HttpResponse head) = 0;
    virtual void send(std::string_view bytes) = 0;
    // `is_complete`: false if the answer ends early because of an error. The connection is then
    // closed without the mark that ends the body, so the client can see that the answer is cut.
    virtual void end_stream(bool is_complete) = 0;

    virtual bool is_gone() const = 0; // the client has gone, or the answer is complete
    // Sets the function that is called once if the client goes before the answer is complete.
    virtual void on_gone(std::function<void()> call) = 0;

    // JSON members that the log line of the request gets, for example "\"prompt_tokens\":12".
    std::string log_members;
};

// How an exchange has ended.
struct ExchangeEnd {
    int status = 0;
    size_t bytes_sent = 0;
    double seconds = 0;   // from the last byte of the request to the end
    bool is_gone = false; // the client went before the answer was complete
};

// Answers the requests of all connections. All members are called in the I/O thread.
class Handler {
  public:
    virtual ~Handler() = default;

    // Called when the headers are complete. Returns the answer if the request is refused. The body
    // is then not read.
    virtual std::optional<HttpResponse> refuse(const HttpRequest &head) = 0;
    // Called when the body is complete. The answer may come later.
    virtual void handle(std::shared_ptr<Exchange> exchange) = 0;
    // The answer to a request that breaks a rule of HTTP or exceeds a limit.
    virtual HttpResponse error(int status, const std::string &message) = 0;
    // Adds headers that every answer has.
    virtual void add_headers(const HttpRequest &request, HttpResponse &response) = 0;
    // Called once for each answer, after it was sent or the client has gone.
    virtual void ended(const HttpRequest &request, const std::string &id,
                       const std::string &log_members, const ExchangeEnd &end) = 0;
};

} // namespace keel::server
