#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <utility>

namespace keel::server::test {

struct RawResponse {
    int status = 0; // 0: the connection was closed before an answer came
    std::map<std::string, std::string> headers; // names in small letters
    std::string body;
    bool is_whole = false; // the body ended as its headers say
};

// A client that sends the bytes that it is given. It waits at most ten seconds for bytes.
class RawClient {
  public:
    explicit RawClient(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const timeval limit{10, 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (::connect(fd_, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0)
            throw std::runtime_error("cannot connect");
    }
    ~RawClient() { close(); }
    RawClient(RawClient &&other) noexcept
        : fd_(std::exchange(other.fd_, -1)), buffer_(std::move(other.buffer_)) {}
    RawClient(const RawClient &) = delete;
    RawClient &operator=(const RawClient &) = delete;

    void close() {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }
    // Returns false if the server has closed the connection.
    bool send(std::string_view bytes) const {
        while (!bytes.empty()) {
            const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (n <= 0) return false;
            bytes.remove_prefix(static_cast<size_t>(n));
        }
        return true;
    }
    void set_receive_buffer(int bytes) const {
        ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    }
    // Reads until `mark` was received. Returns all bytes up to its end; empty at the end of the
    // connection.
    std::string read_until(std::string_view mark) {
        while (true) {
            const size_t at = buffer_.find(mark);
            if (at != std::string::npos) return take(at + mark.size());
            if (!read_more()) return {};
        }
    }
    std::string read_to_end() {
        while (read_more()) {
        }
        return std::exchange(buffer_, {});
    }
    // True if the server closes the connection without sending anything.
    bool is_closed() { return buffer_.empty() && !read_more(); }

    RawResponse read_head() {
        RawResponse response;
        const std::string head = read_until("\r\n\r\n");
        if (head.size() < 12) return response;
        response.status = std::atoi(head.c_str() + 9);
        size_t at = head.find("\r\n") + 2;
        while (at + 2 < head.size()) {
            const size_t end = head.find("\r\n", at), colon = head.find(": ", at);
            std::string name = head.substr(at, colon - at);
            std::transform(name.begin(), name.end(), name.begin(), ::tolower);
            response.headers[name] = head.substr(colon + 2, end - colon - 2);
            at = end + 2;
        }
        return response;
    }
    RawResponse read_response(bool has_body = true) {
        RawResponse response = read_head();
        if (response.status == 0 || response.status == 100) return response;
        if (!has_body || response.status == 204) {
            response.is_whole = true;
        } else if (response.headers.contains("content-length")) {
            const auto size = std::stoul(response.headers["content-length"]);
            while (buffer_.size() < size && read_more()) {
            }
            response.is_whole = buffer_.size() >= size;
            response.body = take(std::min(size, buffer_.size()));
        } else if (response.headers.contains("transfer-encoding")) {
            read_chunks(response);
        } else {
            response.body = read_to_end();
        }
        return response;
    }

  private:
    bool read_more() {
        char piece[16384];
        const ssize_t n = ::recv(fd_, piece, sizeof piece, 0);
        if (n <= 0) return false;
        buffer_.append(piece, static_cast<size_t>(n));
        return true;
    }
    std::string take(size_t bytes) {
        std::string out = buffer_.substr(0, bytes);
        buffer_.erase(0, bytes);
        return out;
    }
    void read_chunks(RawResponse &response) {
        while (true) {
            const std::string line = read_until("\r\n");
            if (line.empty()) return;
            const size_t size = std::strtoul(line.c_str(), nullptr, 16);
            while (buffer_.size() < size + 2 && read_more()) {
            }
            if (buffer_.size() < size + 2) return;
            response.body += take(size + 2).substr(0, size);
            if (size == 0) {
                response.is_whole = true;
                return;
            }
        }
    }

    int fd_;
    std::string buffer_;
};

// A request with a body and its length.
inline std::string http_request(std::string_view method, std::string_view path,
                                std::string_view body = "", std::string_view headers = "") {
    std::string out = std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n";
    out += headers;
    if (!body.empty() || method == "POST")
        out += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
               "\r\n";
    return out + "\r\n" + std::string(body);
}

} // namespace keel::server::test
