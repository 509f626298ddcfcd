// Host memory for buffers, weights and scratch. Large blocks are mapped, so that they can have huge
// pages and return to the system at once when freed.
#pragma once

#include <keel/host.h>

namespace keel_cpu {

// A block of memory, aligned to at least 64 bytes. This is plain data: its holder must free it.
struct Memory {
    uint8_t *data = nullptr;
    uint64_t bytes = 0;  // the requested size
    uint64_t mapped = 0; // length of the mapping; 0: the block is from host->alloc
};

// Returns a block with undefined contents. data is NULL if there is no memory.
Memory memory_alloc(const keel_host *host, uint64_t bytes) noexcept;
void memory_free(const keel_host *host,
                 Memory &memory) noexcept; // leaves an empty block; an empty block is allowed

// Reserves address space. It takes no memory until it is accessed.
Memory memory_reserve(uint64_t bytes) noexcept;
// Allocates memory for whole pages. Returns false if there is none. `data` is page-aligned.
bool memory_commit(uint8_t *data, uint64_t bytes) noexcept;
// Returns whole pages to the system.
bool memory_release(uint8_t *data, uint64_t bytes) noexcept;

uint64_t page_bytes() noexcept;

// The system's memory in bytes; 0: unknown. `available` is 1 if nothing is available. `meminfo`:
// tests pass another file.
void system_memory(uint64_t &total, uint64_t &available,
                   const char *meminfo = "/proc/meminfo") noexcept;

} // namespace keel_cpu
