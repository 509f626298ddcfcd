// Host memory for buffers, weights and scratch. Large blocks are separate mappings, so that they
// can have huge pages and return to the system as soon as they are freed.
#pragma once

#include <keel/host.h>

namespace keel_cpu {

// A block of memory, aligned to at least 64 bytes. The struct has no destructor: its holder must
// call memory_free().
struct Memory {
    uint8_t *data = nullptr;
    uint64_t bytes = 0;  // number of bytes that were requested
    uint64_t mapped = 0; // length of the mapping; 0: the block was allocated with host->alloc
};

// Returns a block with undefined contents. `data` is NULL if there is no memory.
Memory memory_alloc(const keel_host *host, uint64_t bytes) noexcept;
// Frees a block. The block may be empty before the call, and is empty after it.
void memory_free(const keel_host *host, Memory &memory) noexcept;

// Reserves address space. The reserved pages take no memory until they are accessed.
Memory memory_reserve(uint64_t bytes) noexcept;
// Allocates memory for whole pages of a reserved block. `data` is page-aligned. Returns false if
// there is no memory.
bool memory_commit(uint8_t *data, uint64_t bytes) noexcept;
// Returns the memory of whole pages of a reserved block to the system.
bool memory_release(uint8_t *data, uint64_t bytes) noexcept;

uint64_t page_bytes() noexcept;

// Sets `total` and `available` to the system's memory in bytes. 0 means unknown, so `available` is
// 1 if no memory is available. Only tests pass another file as `meminfo`.
void system_memory(uint64_t &total, uint64_t &available,
                   const char *meminfo = "/proc/meminfo") noexcept;

} // namespace keel_cpu
