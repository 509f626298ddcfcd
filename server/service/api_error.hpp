#pragma once

#include "server/http/message.hpp"

#include <keel/keel.hpp>

#include <exception>
#include <optional>
#include <string>

namespace keel::server {

// An error that a client gets, in OpenAI's form: {"error":{"message","type","param","code"}}.
struct ApiError : std::exception {
    ApiError(int http_status, std::string text, std::optional<std::string> key = std::nullopt,
             std::optional<std::string> error_code = std::nullopt)
        : status(http_status), message(std::move(text)), param(std::move(key)),
          code(std::move(error_code)) {}
    const char *what() const noexcept override { return message.c_str(); }

    int status;
    std::string message;
    std::optional<std::string> param; // the key of the body that is wrong
    std::optional<std::string> code;
    std::optional<int> retry_after; // seconds, for 429 and 503
};

// The object {"message","type","param","code"}.
std::string error_object(const ApiError &error);
// The members of a log line about the error. The message of a client's error may quote the body, so
// it is left out.
std::string error_log(const ApiError &error);
HttpResponse error_response(const ApiError &error);

// The status and the message of an error of the scheduler.
ApiError api_error(api::ErrorKind kind, const std::string &message);
// The error for an exception of any type. Call it in a catch block.
ApiError current_api_error();

} // namespace keel::server
