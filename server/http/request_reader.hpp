#pragma once

#include "server/http/limits.hpp"
#include "server/http/message.hpp"

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/system/error_code.hpp>

#include <memory>
#include <string>

namespace keel::server {

// Reads the requests of one connection from its bytes, one after the other. It refuses requests
// whose length is not certain: two length headers, an unknown transfer encoding, no or two Host
// headers.
class RequestReader {
  public:
    enum class Step {
        needs_more, // all bytes that can be used are used
        head,       // the headers are complete; returned once for each request
        complete,   // the body is complete; take() gives the request
        failed,     // error() says why; the connection cannot be used any more
    };
    struct Error {
        int status = 400;
        std::string text;
    };

    explicit RequestReader(const HttpLimits &limits);
    ~RequestReader();

    // Reads from the buffer and removes the bytes that it has read.
    Step read(boost::beast::flat_buffer &buffer);
    // The request without its body. If reading failed, the parts that were read.
    const HttpRequest &head() const { return head_; }
    const Error &error() const { return error_; }
    bool is_complete() const;
    size_t body_bytes() const;
    // Returns the request. The next call of read() begins the next request.
    HttpRequest take();

  private:
    struct Parser;
    void take_head();
    void check_head();
    Step fail(int status, std::string text);
    Step fail_with(const boost::system::error_code &error);

    const HttpLimits &limits_;
    std::unique_ptr<Parser> parser_;
    HttpRequest head_;
    Error error_;
    bool has_head_ = false;
};

} // namespace keel::server
