#pragma once

#include "server/http/exchange.hpp"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace keel::server {

// An endpoint: a method and a path.
struct Route {
    std::string method; // GET also serves HEAD
    std::string path;   // "/v1/models"; the path without /v1 works too, and the other way round
    std::function<void(std::shared_ptr<Exchange>)> handle;
    bool is_public = false; // needs no key
};

class Router {
  public:
    void add(Route route) { routes_.push_back(std::move(route)); }

    // The route of a request. Throws ApiError 404, or 405.
    const Route &find(const HttpRequest &request) const;
    // The methods of a path, as the header Allow has them: "GET, HEAD, OPTIONS". Empty if there is
    // no such path.
    std::string allowed(std::string_view path) const;

  private:
    std::vector<Route> routes_;
};

} // namespace keel::server
