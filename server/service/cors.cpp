#include "server/service/cors.hpp"

#include <algorithm>

namespace keel::server {
namespace {

bool is_local_page(std::string_view origin) {
    for (const std::string_view scheme : {"http://", "https://"}) {
        if (!origin.starts_with(scheme)) continue;
        const std::string_view rest = origin.substr(scheme.size());
        for (const std::string_view host : {"localhost", "127.0.0.1", "[::1]"}) {
            if (!rest.starts_with(host)) continue;
            const std::string_view port = rest.substr(host.size());
            if (port.empty()) return true;
            return port.front() == ':' &&
                   port.find_first_not_of("0123456789", 1) == std::string_view::npos;
        }
    }
    return false;
}

} // namespace

bool Cors::allows(std::string_view origin) const {
    return is_local_page(origin) ||
           std::any_of(origins_.begin(), origins_.end(), [&](const std::string &allowed) {
               return allowed == "*" || allowed == origin;
           });
}

bool Cors::is_preflight(const HttpRequest &request) {
    return request.method == "OPTIONS" && request.header("Origin") &&
           request.header("Access-Control-Request-Method");
}

HttpResponse Cors::preflight(const HttpRequest &request) const {
    HttpResponse response;
    response.status = 204;
    response.type.clear();
    if (!allows(*request.header("Origin"))) {
        response.status = 403;
        return response;
    }
    response.headers.emplace_back("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
    // The wildcard does not cover Authorization, so the requested names are repeated.
    if (const auto names = request.header("Access-Control-Request-Headers"))
        response.headers.emplace_back("Access-Control-Allow-Headers", *names);
    response.headers.emplace_back("Access-Control-Max-Age", "600");
    return response;
}

void Cors::add_headers(const HttpRequest &request, HttpResponse &response) const {
    const auto origin = request.header("Origin");
    if (!origin) return;
    response.headers.emplace_back("Vary", "Origin");
    if (!allows(*origin)) return;
    response.headers.emplace_back("Access-Control-Allow-Origin", *origin);
    response.headers.emplace_back("Access-Control-Expose-Headers", "x-request-id, Retry-After");
}

} // namespace keel::server
