#include "support/count_allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<uint64_t> count{0};
}

// If malloc and free are inlined into new and delete, GCC warns about a mismatch that does not
// exist.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void *operator new(size_t size) {
    ++count;
    if (void *memory = std::malloc(size == 0 ? 1 : size)) return memory;
    throw std::bad_alloc();
}
// Catch2 allocates with this function. A sanitizer's version of it would not match the delete
// below.
void *operator new(size_t size, const std::nothrow_t &) noexcept {
    ++count;
    return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void *memory, const std::nothrow_t &) noexcept { std::free(memory); }
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

uint64_t keel::test::allocations() { return count; }
