#pragma once

#include <cstdint>

namespace keel::test {

// Returns the number of calls of operator new in this program so far, on all threads. A program
// that uses this function must have count_allocations.cpp among its sources.
uint64_t allocations();

} // namespace keel::test
