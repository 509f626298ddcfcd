#pragma once

#include "server/http/message.hpp"

#include <string>
#include <vector>

namespace keel::server {

// Which web pages may use the server from a browser.
class Cors {
  public:
    // `origins`: for example "https://chat.example.org". "*" allows all pages. Pages that this
    // machine serves (http://localhost:PORT, http://127.0.0.1:PORT) are always allowed.
    Cors() = default;
    explicit Cors(std::vector<std::string> origins) : origins_(std::move(origins)) {}

    bool allows(std::string_view origin) const;
    // True if a browser asks whether a page may send a request.
    static bool is_preflight(const HttpRequest &request);
    HttpResponse preflight(const HttpRequest &request) const;
    // Adds the headers that let the page read the answer.
    void add_headers(const HttpRequest &request, HttpResponse &response) const;

  private:
    std::vector<std::string> origins_;
};

} // namespace keel::server
