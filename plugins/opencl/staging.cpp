#include "opencl/staging.hpp"

#include "opencl/stream.hpp"

#include <string.h>

namespace keel_opencl {

Staging::~Staging() {
    clFinish(queue_);
    for (Piece &piece : pieces_)
        if (piece.at != nullptr)
            clEnqueueUnmapMemObject(queue_, piece.memory.get(), piece.at, 0, nullptr, nullptr);
    clFinish(queue_);
}

void Staging::open() {
    std::vector<Piece> pieces(piece_count);
    for (Piece &piece : pieces) {
        cl_int code = CL_SUCCESS;
        piece.memory.reset(clCreateBuffer(context_, CL_MEM_ALLOC_HOST_PTR | CL_MEM_READ_ONLY,
                                          piece_bytes, nullptr, &code));
        check(host_, code, "staging memory");
        piece.at = static_cast<unsigned char *>(
            clEnqueueMapBuffer(queue_, piece.memory.get(), CL_TRUE, CL_MAP_WRITE, 0, piece_bytes, 0,
                               nullptr, nullptr, &code));
        check(host_, code, "mapping staging memory");
    }
    pieces_ = std::move(pieces);
}

unsigned char *Staging::room(uint64_t n) {
    if (piece_bytes - used_ < n) {
        cl_event event = nullptr;
        check(host_, clEnqueueMarkerWithWaitList(queue_, 0, nullptr, &event),
              "clEnqueueMarkerWithWaitList");
        pieces_[current_].done.reset(event);
        current_ = (current_ + 1) % piece_count;
        used_ = 0;
        Piece &next = pieces_[current_];
        if (next.done) {
            const cl_event wait = next.done.get();
            // the queue up to this command was submitted, so the command will end
            if (!has_ended(wait)) {
                ++ctx_.own_submits;
                ++ctx_.own_waits;
            }
            wait_for(ctx_, wait, "waiting for staging memory");
            next.done.reset();
        }
    }
    unsigned char *at = pieces_[current_].at + used_;
    used_ += (n + 63) / 64 * 64;
    if (used_ > piece_bytes) used_ = piece_bytes;
    return at;
}

void Staging::write(cl_mem to, uint64_t offset, const void *source, uint64_t n) {
    const auto *from = static_cast<const unsigned char *>(source);
    while (n != 0) {
        const uint64_t part = n < piece_bytes ? n : piece_bytes;
        unsigned char *at = room(part);
        memcpy(at, from, part);
        check(host_,
              clEnqueueWriteBuffer(queue_, to, CL_FALSE, offset, part, at, 0, nullptr, nullptr),
              "clEnqueueWriteBuffer");
        from += part;
        offset += part;
        n -= part;
    }
}

} // namespace keel_opencl
