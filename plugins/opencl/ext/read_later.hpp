// Reads of a few bytes while the queue continues to run (keel.read_later/1).
#pragma once

#include "opencl/cl.hpp"

#include <keel/ext/draft/read_later.h>

#include <array>

namespace keel_opencl {

struct LaterReads {
    struct Read {
        uint64_t number = 0; // 0: this entry is free
        uint64_t bytes = 0;
        Event done;
    };
    std::array<Read, KEEL_READ_LATER_MOST> reads;
    // The driver writes the bytes here. The array exists as long as the context. If the device does
    // not answer, the context is not freed.
    std::array<unsigned char, size_t{KEEL_READ_LATER_MOST} * KEEL_READ_LATER_BYTES> mail;
    uint64_t last = 0; // number of the newest read
};

} // namespace keel_opencl
