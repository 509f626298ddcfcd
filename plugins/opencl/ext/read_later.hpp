// Reads of a few bytes that do not stop the queue.
#pragma once

#include "opencl/cl.hpp"

#include <keel/ext/draft/read_later.h>

#include <array>

namespace keel_opencl {

struct LaterReads {
    struct Read {
        uint64_t number = 0; // 0: free
        uint64_t bytes = 0;
        Event done;
    };
    std::array<Read, KEEL_READ_LATER_MOST> reads;
    // The driver writes the bytes here. The array exists as long as the context. The context is
    // kept if the device does not answer.
    std::array<unsigned char, size_t{KEEL_READ_LATER_MOST} * KEEL_READ_LATER_BYTES> mail;
    uint64_t last = 0; // number of the last read
};

} // namespace keel_opencl
