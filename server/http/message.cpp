#include "server/http/message.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <fmt/format.h>
#include <iterator>

namespace keel::server {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// The current time in the form of the header Date.
std::string http_date() {
    static constexpr std::array<const char *, 7> days{"Sun", "Mon", "Tue", "Wed",
                                                      "Thu", "Fri", "Sat"};
    static constexpr std::array<const char *, 12> names{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const std::time_t now = std::time(nullptr);
    std::tm t{};
    gmtime_r(&now, &t);
    return fmt::format(
        "{}, {:02} {} {} {:02}:{:02}:{:02} GMT", days[static_cast<size_t>(t.tm_wday)], t.tm_mday,
        names[static_cast<size_t>(t.tm_mon)], 1900 + t.tm_year, t.tm_hour, t.tm_min, t.tm_sec);
}

} // namespace

bool is_same_name(std::string_view a, std::string_view b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](char x, char y) { return lower(x) == lower(y); });
}

std::optional<std::string_view> HttpRequest::header(std::string_view name) const {
    for (const auto &header : headers)
        if (is_same_name(header.first, name)) return header.second;
    return std::nullopt;
}

std::string_view status_text(int status) noexcept {
    switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Payload Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Unknown";
    }
}

std::string response_head(const HttpResponse &response, BodyLength length, bool is_last) {
    std::string out =
        fmt::format("HTTP/1.1 {} {}\r\n", response.status, status_text(response.status));
    const auto add = [&](std::string_view name, std::string_view value) {
        fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
    };
    add("Date", http_date());
    add("Server", "keel");
    if (!response.type.empty()) add("Content-Type", response.type);
    for (const auto &header : response.headers) add(header.first, header.second);
    if (length == BodyLength::chunks) add("Transfer-Encoding", "chunked");
    if (length == BodyLength::known && response.status != 204)
        add("Content-Length", std::to_string(response.body.size()));
    add("Connection", is_last ? "close" : "keep-alive");
    out += "\r\n";
    return out;
}

std::string http_chunk(std::string_view bytes) {
    return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

} // namespace keel::server
