#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel::server {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// True if two header names are equal. Their letters may differ in case.
bool is_same_name(std::string_view a, std::string_view b) noexcept;

// A request whose headers are read. The body is complete when Handler::handle() gets the request.
struct HttpRequest {
    std::string method;    // "GET", "POST", ...
    std::string path;      // "/v1/models"; not decoded
    std::string query;     // the text after '?'
    bool is_old = false;   // HTTP/1.0: the client does not know chunks
    bool can_stay = false; // the client can use the connection for another request
    HttpHeaders headers;
    std::string body;

    // The value of a header, or nullopt. If the header occurs twice, the first value.
    std::optional<std::string_view> header(std::string_view name) const;
};

struct HttpResponse {
    int status = 200;
    std::string type = "application/json"; // of the content; empty: no header is written
    HttpHeaders headers;
    std::string body;
    bool close = false; // closes the connection after this answer
};

// How the length of a body is sent.
enum class BodyLength {
    known,  // a Content-Length header
    chunks, // Transfer-Encoding: chunked
    close,  // the end of the connection ends the body (HTTP/1.0)
};

// The status line and the headers, with the empty line after them. `is_last`: the connection is
// closed after the answer.
std::string response_head(const HttpResponse &response, BodyLength length, bool is_last);

std::string_view status_text(int status) noexcept;

// One chunk of a chunked body. `bytes` must not be empty.
std::string http_chunk(std::string_view bytes);
inline constexpr std::string_view http_last_chunk = "0\r\n\r\n";

} // namespace keel::server
