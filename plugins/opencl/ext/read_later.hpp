// Reads of a few bytes that stop nothing.
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
    // Where the driver puts them. It stays as long as the context does, which a device that does
    // not come back keeps.
    std::array<unsigned char, size_t{KEEL_READ_LATER_MOST} * KEEL_READ_LATER_BYTES> mail;
    uint64_t last = 0; // the last number given
};

} // namespace keel_opencl
