#pragma once

#include "platform/threads.hpp"

namespace keel {

// Measures the machine's peak of f32 multiply-adds, in operations per second. All threads of a team
// compute from registers with vector units. A backend with matrix units (AMX), or with 8 or 16
// bits, may be faster.
struct FlopsReading {
    double flops = 0;
    const char *isa = ""; // instruction set of the loop: "avx512"
};
FlopsReading measure_flops(ThreadTeam &team, double seconds = 0.1);

} // namespace keel
