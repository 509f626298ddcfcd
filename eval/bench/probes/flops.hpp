#pragma once

#include "platform/threads.hpp"

namespace keel {

// The machine's peak of f32 multiply-adds, operations per second, all threads of a team at once,
// out of registers. Of vector units: a backend that has matrix units (AMX) or computes in 8 or 16
// bits may well be above it.
struct FlopsReading {
    double flops = 0;
    const char *isa = ""; // what the loop was compiled for: "avx512"
};
FlopsReading measure_flops(ThreadTeam &team, double seconds = 0.1);

} // namespace keel
