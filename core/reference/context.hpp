#pragma once

#include <keel/backend.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

namespace keel::reference {

// The structs to which the opaque pointers of the C table point.

struct Context {
    // a copy that keel_adopt() made; functions that the host does not have are NULL
    keel_host host = {};
    const keel_host *their_host = nullptr;
    uint64_t tickets = 0; // the last ticket that was returned
    uint64_t bytes = 0;   // bytes of buffers and joined weights
};

struct Buffer {
    std::byte *data = nullptr;
    uint64_t size = 0;
    keel_buffer_kind kind = KEEL_BUFFER_DEVICE;
    bool owned = false;
};

struct Weight {
    // empty if the sources are used in place
    std::vector<std::byte> joined;
    const std::byte *data = nullptr;
    // Only for a weight with experts: the sources, which are used in place.
    struct Part {
        const std::byte *data;
        int64_t rows;
    };
    std::vector<Part> parts;
    keel_dtype dtype = KEEL_DTYPE_NONE;
    int64_t rows = 0, cols = 0;
    int64_t experts = 0; // 0: a weight without experts
};

struct Plan {
    keel_op op = 0;
    std::string kernel;
};

inline Context &of(keel_ctx *c) { return *reinterpret_cast<Context *>(c); }
inline Buffer &of(keel_buffer *b) { return *reinterpret_cast<Buffer *>(b); }
inline Weight &of(keel_weight *w) { return *reinterpret_cast<Weight *>(w); }
inline const Weight &of(const keel_weight *w) { return *reinterpret_cast<const Weight *>(w); }
inline const Plan &of(const keel_plan *p) { return *reinterpret_cast<const Plan *>(p); }

// The reason why a call is refused. Checks throw a Refusal. It is caught before the call returns.
struct Refusal {
    keel_status status;
    std::string why;
};

[[noreturn]] inline void refuse(keel_status status, std::string why) {
    throw Refusal{status, std::move(why)};
}

// Set the functions of the table that are not ops (buffers.cpp, weights.cpp).
void fill_memory_slots(keel_backend &table);
void fill_weight_slots(keel_backend &table);

// Reports the exception that is being handled through the host, and returns its status. Call it
// inside catch (...). A Refusal has a status; other exceptions are converted to a status.
keel_status report(const Context *context) noexcept;

// Runs body(). Converts exceptions to a status, so no exception leaves a function of the C table.
template <typename Body> keel_status guarded(const Context *context, const Body &body) noexcept {
    try {
        body();
        return KEEL_OK;
    } catch (...) {
        return report(context);
    }
}

} // namespace keel::reference
