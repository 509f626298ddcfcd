// Staging memory for writes. buffer_write copies its source to staging memory and returns, while
// the queue continues to run.
#pragma once

#include "opencl/cl.hpp"

#include <memory>
#include <vector>

namespace keel_opencl {

// A ring of pieces of pinned host memory. The ring never grows.
class Staging {
  public:
    Staging(keel_ctx &ctx, const keel_host *host, cl_context context, cl_command_queue queue)
        : ctx_(ctx), host_(host), context_(context), queue_(queue) {
        open();
    }
    ~Staging();
    Staging(const Staging &) = delete;
    Staging &operator=(const Staging &) = delete;

    // Queues a write of n bytes. `source` is copied before this function returns.
    void write(cl_mem to, uint64_t offset, const void *source, uint64_t n);
    // Changes the queue. Must be called only when all queued commands are done.
    void use(cl_command_queue queue) { queue_ = queue; }
    uint64_t bytes() const { return pieces_.size() * piece_bytes; }

  private:
    static constexpr uint64_t piece_bytes = 1 << 20;
    static constexpr size_t piece_count = 4;
    struct Piece {
        Memory memory;
        unsigned char *at = nullptr;
        // event of the last write from this piece; it is set when the next piece is begun
        Event done;
    };

    void open();
    unsigned char *room(uint64_t n); // returns memory for n bytes; waits if the ring is full
    keel_ctx &ctx_;
    const keel_host *host_;
    cl_context context_;
    cl_command_queue queue_;
    std::vector<Piece> pieces_;
    size_t current_ = 0;
    uint64_t used_ = 0; // used bytes of the current piece
};

} // namespace keel_opencl
