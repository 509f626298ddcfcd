#pragma once

#include <cstddef>

namespace keel::server {

// Limits for clients. A client that exceeds a limit gets an error, or its connection is closed.
struct HttpLimits {
    size_t header_bytes = size_t{16} << 10; // request line and headers; above: 431
    size_t body_bytes = size_t{16} << 20;   // body of one request; above: 413
    // Bytes of all bodies that are being read or answered; above: 503.
    size_t all_body_bytes = size_t{512} << 20;
    size_t connections = 1024; // above: 503, and the connection is closed
    // Bytes of an answer that are not sent yet. A client that reads a stream too slowly exceeds
    // them. The request is then cancelled, and the connection is closed.
    size_t unsent_bytes = size_t{1} << 20;
    // Size of the system's buffer for the bytes that are sent to one client.
    size_t socket_bytes = size_t{256} << 10;
    // Bytes of later requests on the same connection that are stored while a request is answered.
    size_t ahead_bytes = size_t{64} << 10;
    double header_seconds = 10;  // from the first byte of a request to its last header; above: 408
    double request_seconds = 60; // from the first byte of a request to its last byte; above: 408
    double idle_seconds = 75;    // between two requests; above: the connection is closed
    double write_seconds = 30;   // in which the client takes no byte; above: closed
};

} // namespace keel::server
