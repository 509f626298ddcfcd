#pragma once

#include "platform/threads.hpp"

namespace keel {

// Measures the machine's peak of f32 multiply-adds in operations per second. All threads of a team
// compute with vector units on values in registers. A backend that uses matrix units (AMX) or 8-bit
// or 16-bit products can be faster than this peak.
struct FlopsReading {
    double flops = 0;
    const char *isa = ""; // instruction set of the loop, for example "avx512"
};
FlopsReading measure_flops(ThreadTeam &team, double seconds = 0.1);

} // namespace keel
