#pragma once

#include <chrono>
#include <string>

namespace keel::server {

struct HttpAnswer {
    int status = 0;
    std::string body;
};

// Reads a page of a server. `url`: "http://HOST:PORT", "HOST:PORT" or "unix:PATH" (a Unix socket).
// `key`: an API key, or empty. `limit`: the longest time to connect, to send, and to read. Throws
// Error(usage) for another form, and Error(runtime) if the server does not answer in this time.
HttpAnswer http_get(const std::string &url, const std::string &path, const std::string &key,
                    std::chrono::milliseconds limit = std::chrono::seconds(10));

} // namespace keel::server
