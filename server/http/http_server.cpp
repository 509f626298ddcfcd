#include "server/http/http_server.hpp"

#include "server/http/connection.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/log.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <atomic>
#include <chrono>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <unordered_map>

namespace keel::server {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;
using Tcp = asio::ip::tcp;
using Local = asio::local::stream_protocol;

template <typename Any> void prepare_socket(Any &socket, const HttpLimits &limits) {
    ErrorCode ignored;
    if constexpr (std::is_same_v<Any, Tcp::socket>) socket.set_option(Tcp::no_delay(true), ignored);
    socket.set_option(asio::socket_base::send_buffer_size(static_cast<int>(limits.socket_bytes)),
                      ignored);
}

// Removes a socket file that no program listens at.
void remove_unused(asio::io_context &io, const std::string &path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
    Local::socket probe(io);
    ErrorCode error;
    probe.connect(Local::endpoint(path), error);
    if (error == asio::error::connection_refused) ::unlink(path.c_str());
}

} // namespace

struct HttpServer::Impl {
    Impl(Handler &handler, const HttpLimits &http_limits)
        : limits(http_limits), host{handler, limits, 0} {}

    template <typename Protocol> struct Listener {
        explicit Listener(asio::io_context &io) : acceptor(io), retry(io) {}
        typename Protocol::acceptor acceptor;
        asio::steady_timer retry;
    };

    template <typename Protocol> void accept(Listener<Protocol> &listener) {
        listener.acceptor.async_accept(
            [this, &listener](const ErrorCode &error, typename Protocol::socket socket) {
                if (error == asio::error::operation_aborted || is_draining) return;
                if (!error) {
                    prepare_socket(socket, limits);
                    add(Socket(std::move(socket)));
                    return accept(listener);
                }
                // for example, the process has no file descriptor left
                listener.retry.expires_after(std::chrono::milliseconds(100));
                listener.retry.async_wait([this, &listener](const ErrorCode &stopped) {
                    if (!stopped && !is_draining) accept(listener);
                });
            });
    }

    void add(Socket socket) {
        if (open.size() >= limits.connections) return refuse(std::move(socket));
        auto connection = Connection::start(std::move(socket), host,
                                            [this](Connection *closed) { open.erase(closed); });
        open.emplace(connection.get(), std::move(connection));
    }

    // Tells the client that there are too many connections, if the socket takes the text at once.
    void refuse(Socket socket) {
        HttpResponse response = host.handler.error(
            503, "the server has too many open connections; close idle ones, or try again later");
        response.headers.emplace_back("Retry-After", "1");
        const std::string text = response_head(response, BodyLength::known, true) + response.body;
        ErrorCode ignored;
        socket.non_blocking(true, ignored);
        socket.write_some(asio::buffer(text), ignored);
        socket.shutdown(Socket::shutdown_send, ignored);
        socket.close(ignored);
    }

    void close_listeners() {
        ErrorCode ignored;
        for (const auto &listener : tcp) listener->acceptor.close(ignored);
        for (const auto &listener : local) listener->acceptor.close(ignored);
        for (const std::string &path : paths) ::unlink(path.c_str());
        paths.clear();
    }

    HttpLimits limits;
    ConnectionHost host;
    asio::io_context io{1};
    std::vector<std::unique_ptr<Listener<Tcp>>> tcp;
    std::vector<std::unique_ptr<Listener<Local>>> local;
    std::vector<std::string> paths; // of Unix sockets
    std::vector<std::unique_ptr<asio::signal_set>> signals;
    std::unordered_map<Connection *, std::shared_ptr<Connection>> open;
    bool is_draining = false;
};

HttpServer::HttpServer(Handler &handler, HttpLimits limits)
    : impl_(std::make_unique<Impl>(handler, limits)) {}

HttpServer::~HttpServer() {
    impl_->close_listeners();
    const auto open = impl_->open; // close() changes the map
    for (const auto &entry : open) entry.second->close();
}

uint16_t HttpServer::listen_tcp(const std::string &host, uint16_t port) {
    const auto check = [&](const ErrorCode &error, const char *what) {
        if (error)
            throw_error(ErrorKind::usage,
                        "{} port {}: cannot {}: {}; choose another --host or --port",
                        printable(host), port, what, error.message());
    };
    ErrorCode error;
    Tcp::resolver resolver(impl_->io);
    const auto found = resolver.resolve(
        host, std::to_string(port), Tcp::resolver::passive | Tcp::resolver::numeric_service, error);
    check(error, "find the address");
    const Tcp::endpoint endpoint = found.begin()->endpoint();
    auto listener = std::make_unique<Impl::Listener<Tcp>>(impl_->io);
    listener->acceptor.open(endpoint.protocol(), error);
    check(error, "open a socket");
    listener->acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
    listener->acceptor.bind(endpoint, error);
    check(error, "use the address");
    listener->acceptor.listen(asio::socket_base::max_listen_connections, error);
    check(error, "listen");
    const uint16_t chosen = listener->acceptor.local_endpoint().port();
    impl_->accept(*impl_->tcp.emplace_back(std::move(listener)));
    return chosen;
}

void HttpServer::listen_unix(const std::string &path) {
    const auto check = [&](const ErrorCode &error, const char *what) {
        if (error)
            throw_error(ErrorKind::usage, "{}: cannot {}: {}; choose another path for --unix",
                        printable(path, 400), what, error.message());
    };
    if (path.size() > 100)
        throw_error(ErrorKind::usage, "--unix: expected a path of at most 100 bytes, found {}",
                    path.size());
    remove_unused(impl_->io, path);
    ErrorCode error;
    auto listener = std::make_unique<Impl::Listener<Local>>(impl_->io);
    listener->acceptor.open(Local(), error);
    check(error, "open a socket");
    listener->acceptor.bind(Local::endpoint(path), error);
    check(error, "make the socket");
    impl_->paths.push_back(path);
    listener->acceptor.listen(asio::socket_base::max_listen_connections, error);
    check(error, "listen");
    impl_->accept(*impl_->local.emplace_back(std::move(listener)));
}

void HttpServer::run() {
    const auto work = asio::make_work_guard(impl_->io);
    while (!impl_->io.stopped()) {
        try {
            impl_->io.run();
        } catch (const std::exception &e) { // a bug; the other connections go on
            log().warn("the server caught an error that it did not expect: {}", e.what());
        }
    }
}

void HttpServer::stop() { impl_->io.stop(); }

void HttpServer::post(std::function<void()> call) { asio::post(impl_->io, std::move(call)); }

void HttpServer::after(double seconds, std::function<void()> call) {
    auto timer = std::make_shared<asio::steady_timer>(impl_->io);
    timer->expires_after(std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
    timer->async_wait([timer, call = std::move(call)](const ErrorCode &error) {
        if (!error) call();
    });
}

void HttpServer::on_signals(const std::vector<int> &signals, std::function<void(int)> call) {
    auto set = std::make_unique<asio::signal_set>(impl_->io);
    for (const int signal : signals) set->add(signal);
    asio::signal_set &waiting = *impl_->signals.emplace_back(std::move(set));
    auto wait = std::make_shared<std::function<void()>>();
    *wait = [&waiting, call = std::move(call), again = std::weak_ptr(wait)] {
        waiting.async_wait([call, wait = again.lock()](const ErrorCode &error, int signal) {
            if (error) return;
            (*wait)(); // first, because the call may throw
            call(signal);
        });
    };
    (*wait)();
}

void HttpServer::drain() {
    impl_->is_draining = true;
    impl_->close_listeners();
    const auto open = impl_->open; // drain() may close a connection, which changes the map
    for (const auto &entry : open) entry.second->drain();
}

size_t HttpServer::connections() const { return impl_->open.size(); }

} // namespace keel::server
