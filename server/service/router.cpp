#include "server/service/router.hpp"

#include "server/service/api_error.hpp"

#include "base/display.hpp"

#include <fmt/format.h>

namespace keel::server {
namespace {

// The path without "/v1" in front and without "/" at the end.
std::string_view core_path(std::string_view path) {
    constexpr std::string_view version = "/v1/";
    if (path.starts_with(version)) path.remove_prefix(version.size() - 1);
    while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
    return path;
}

} // namespace

std::string Router::allowed(std::string_view path) const {
    std::string methods;
    for (const Route &route : routes_)
        if (core_path(route.path) == core_path(path))
            methods += route.method + (route.method == "GET" ? ", HEAD, " : ", ");
    return methods.empty() ? methods : methods + "OPTIONS";
}

const Route &Router::find(const HttpRequest &request) const {
    std::string_view method = request.method;
    if (method == "HEAD") method = "GET";
    for (const Route &route : routes_)
        if (route.method == method && core_path(route.path) == core_path(request.path))
            return route;
    const std::string methods = allowed(request.path);
    if (!methods.empty())
        throw ApiError(405, fmt::format("{}: expected one of the methods {}, found {}",
                                        printable(request.path), methods,
                                        printable(request.method, 40)));
    throw ApiError(404, fmt::format("{}: there is no such endpoint; docs/reference/server.md lists "
                                    "all endpoints",
                                    printable(request.path)));
}

} // namespace keel::server
