#pragma once

#include <cstdint>

namespace keel::test {

// How often this program has called operator new so far, on any thread. Programs that ask have
// count_allocations.cpp among their sources.
uint64_t allocations();

} // namespace keel::test
