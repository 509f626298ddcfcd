#include "server/service/api_error.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/json_writer.hpp"

#include <new>

namespace keel::server {
namespace {

constexpr int busy_seconds = 1;

const char *type_of(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

} // namespace

std::string error_object(const ApiError &error) {
    JsonWriter out;
    out.begin_object()
        .member("message", error.message)
        .member("type", type_of(error.status))
        .member("param", error.param)
        .member("code", error.code)
        .end_object();
    return out.take();
}

std::string error_log(const ApiError &error) {
    JsonWriter out;
    out.begin_object().member("error", type_of(error.status)).member("param", error.param);
    if (error.status >= 500) out.member("message", error.message);
    out.end_object();
    const std::string object = out.take();
    return object.substr(1, object.size() - 2);
}

HttpResponse error_response(const ApiError &error) {
    HttpResponse response;
    response.status = error.status;
    response.body = "{\"error\":" + error_object(error) + "}";
    if (error.retry_after)
        response.headers.emplace_back("Retry-After", std::to_string(*error.retry_after));
    return response;
}

ApiError api_error(api::ErrorKind kind, const std::string &message) {
    switch (kind) {
    case api::ErrorKind::usage: return {400, message};
    case api::ErrorKind::input:
    case api::ErrorKind::plugin: return {400, message, "keel"};
    case api::ErrorKind::resource: {
        ApiError error(429, message, std::nullopt, "queue_full");
        error.retry_after = busy_seconds;
        return error;
    }
    case api::ErrorKind::runtime:
    case api::ErrorKind::internal: break;
    }
    return {500, message};
}

ApiError current_api_error() {
    try {
        throw;
    } catch (const ApiError &e) {
        return e;
    } catch (const JsonError &e) {
        return {400, (e.path().empty() ? "" : e.path() + ": ") + e.text(),
                e.path().empty() ? std::nullopt : std::optional(e.path())};
    } catch (const api::Error &e) {
        return api_error(e.kind(), e.what());
    } catch (const Error &e) {
        const bool is_clients = e.kind() == ErrorKind::usage || e.kind() == ErrorKind::input;
        return {is_clients ? 400 : 500, e.what()};
    } catch (const std::bad_alloc &) {
        ApiError error(503, "the server is out of memory; try again later");
        error.retry_after = busy_seconds;
        return error;
    } catch (const std::exception &e) {
        return {500, "an error that the server did not expect: " + printable(e.what(), 400)};
    }
}

} // namespace keel::server
