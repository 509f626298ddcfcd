#pragma once

#include "server/http/exchange.hpp"
#include "server/http/limits.hpp"

#include <boost/asio/generic/stream_protocol.hpp>

#include <functional>
#include <memory>

namespace keel::server {

using Socket = boost::asio::generic::stream_protocol::socket;

// What the connections of a server share.
struct ConnectionHost {
    Handler &handler;
    const HttpLimits &limits;
    size_t body_bytes = 0; // bytes of all bodies that are read or answered now
};

// One connection of a client. It reads requests and answers them one after the other. While a
// request is answered, it goes on reading. So it sees at once that the client has gone, and keeps
// the bytes of later requests.
class Connection {
  public:
    virtual ~Connection() = default;
    // `closed` is called once, when the connection is closed.
    static std::shared_ptr<Connection> start(Socket socket, ConnectionHost &host,
                                             std::function<void(Connection *)> closed);
    // Closes the connection now if no request is read or answered, else after the answer.
    virtual void drain() = 0;
    virtual void close() = 0;
};

} // namespace keel::server
