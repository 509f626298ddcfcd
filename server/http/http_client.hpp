#pragma once

#include <string>

namespace keel::server {

struct HttpAnswer {
    int status = 0;
    std::string body;
};

// Reads a page of a server. `url`: "http://HOST:PORT", "HOST:PORT" or "unix:PATH" (a Unix socket).
// `key`: an API key, or empty. Throws Error(usage) for another form, and Error(runtime) if the
// server does not answer in ten seconds.
HttpAnswer http_get(const std::string &url, const std::string &path, const std::string &key);

} // namespace keel::server
