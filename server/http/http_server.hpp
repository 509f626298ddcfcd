#pragma once

#include "server/http/exchange.hpp"
#include "server/http/limits.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace keel::server {

// Accepts connections and runs them in the I/O thread: the thread that calls run(). Functions must
// be called in this thread, or before run(), except post() and stop().
class HttpServer {
  public:
    HttpServer(Handler &handler, HttpLimits limits);
    ~HttpServer();
    HttpServer(const HttpServer &) = delete;
    HttpServer &operator=(const HttpServer &) = delete;

    // Listens at an address ("127.0.0.1", "::1", "localhost"). Port 0 chooses a free port. Returns
    // the port. Throws Error(usage) if the address cannot be used.
    uint16_t listen_tcp(const std::string &host, uint16_t port);
    // Listens at a Unix socket. Replaces a socket file that no program uses. The file is removed at
    // the end. Throws Error(usage).
    void listen_unix(const std::string &path);

    void run();  // returns after stop()
    void stop(); // any thread
    // Runs a function in the I/O thread. Any thread.
    void post(std::function<void()> call);
    // Runs a function in the I/O thread after some time.
    void after(double seconds, std::function<void()> call);
    // Calls a function in the I/O thread when the process gets one of the signals.
    void on_signals(const std::vector<int> &signals, std::function<void(int)> call);

    // Accepts no more connections. Closes each connection when its current answer is complete.
    void drain();
    size_t connections() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace keel::server
