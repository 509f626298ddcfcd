// Host memory for buffers, weights and scratch: what is large is mapped, so that it can have huge
// pages and go back to the system at once.
#pragma once

#include <keel/host.h>

namespace keel_cpu {

// A block of memory aligned to at least 64 bytes. Plain data: whoever holds it frees it.
struct Memory {
    uint8_t *data = nullptr;
    uint64_t bytes = 0;  // as asked for
    uint64_t mapped = 0; // length of the mapping; 0: from host->alloc
};

// data is NULL when there is no memory. Contents are undefined.
Memory memory_alloc(const keel_host *host, uint64_t bytes) noexcept;
void memory_free(const keel_host *host,
                 Memory &memory) noexcept; // leaves an empty block; an empty one is fine

// Address space that holds no memory until it is touched.
Memory memory_reserve(uint64_t bytes) noexcept;
// Stands memory behind whole pages; false when there is none. `data` is page-aligned.
bool memory_commit(uint8_t *data, uint64_t bytes) noexcept;
// Gives whole pages back to the system.
bool memory_release(uint8_t *data, uint64_t bytes) noexcept;

uint64_t page_bytes() noexcept;

// What the system says; 0: unknown; `available` is 1 where nothing is. meminfo: another file in
// tests.
void system_memory(uint64_t &total, uint64_t &available,
                   const char *meminfo = "/proc/meminfo") noexcept;

} // namespace keel_cpu
