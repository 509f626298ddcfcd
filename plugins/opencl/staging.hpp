// Memory that writes pass through, so that buffer_write returns with its source copied and the
// queue does not stop.
#pragma once

#include "opencl/cl.hpp"

#include <memory>
#include <vector>

namespace keel_opencl {

// A ring of pieces of pinned host memory that never grows.
class Staging {
  public:
    Staging(keel_ctx &ctx, const keel_host *host, cl_context context, cl_command_queue queue)
        : ctx_(ctx), host_(host), context_(context), queue_(queue) {
        open();
    }
    ~Staging();
    Staging(const Staging &) = delete;
    Staging &operator=(const Staging &) = delete;

    // Queues a write of n bytes of `source`, which is copied before the return.
    void write(cl_mem to, uint64_t offset, const void *source, uint64_t n);
    void use(cl_command_queue queue) { queue_ = queue; } // once all that was queued is done
    uint64_t bytes() const { return pieces_.size() * piece_bytes; }

  private:
    static constexpr uint64_t piece_bytes = 1 << 20;
    static constexpr size_t piece_count = 4;
    struct Piece {
        Memory memory;
        unsigned char *at = nullptr;
        Event done; // of the last write out of it, once it was left
    };

    void open();
    unsigned char *room(uint64_t n); // waits if the ring is full
    keel_ctx &ctx_;
    const keel_host *host_;
    cl_context context_;
    cl_command_queue queue_;
    std::vector<Piece> pieces_;
    size_t current_ = 0;
    uint64_t used_ = 0; // of the current piece
};

} // namespace keel_opencl
