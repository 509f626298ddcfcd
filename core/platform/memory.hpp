#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Returns the size of a memory page in bytes, a power of two.
uint64_t page_size() noexcept;

// A block of memory that begins on a page boundary. A large block begins on a huge page, and asks
// the system to use huge pages. The content is not initialized. Movable, not copyable.
class PageBuffer {
  public:
    PageBuffer() = default;
    // Throws Error(resource) that names `what` and the size if the system refuses. With 0 bytes,
    // the buffer is empty.
    PageBuffer(uint64_t bytes, std::string_view what);

    std::byte *data() noexcept { return data_.get(); }
    const std::byte *data() const noexcept { return data_.get(); }
    size_t size() const noexcept { return size_; }
    std::span<std::byte> bytes() noexcept { return {data_.get(), size_}; }
    std::span<const std::byte> bytes() const noexcept { return {data_.get(), size_}; }

  private:
    struct Free {
        void operator()(std::byte *p) const noexcept;
    };
    std::unique_ptr<std::byte, Free> data_;
    size_t size_ = 0;
};

// Return the memory of this process in RAM: now, and at its maximum. 0 if unknown.
uint64_t resident_bytes() noexcept;
uint64_t peak_resident_bytes() noexcept;

struct MemoryInfo {
    // bytes that this process can use at most: RAM, or the control group's limit if it is lower
    uint64_t total = 0;
    uint64_t available = 0; // bytes that this process can allocate now without swapping or being
                            // killed; the file cache counts as free
    std::string limited_by; // "system memory", or the control group with the lowest limit
};

// Returns the current memory of the system. Linux: reads MemAvailable of /proc/meminfo, and
// memory.max, memory.high and memory.current of the process's cgroup v2 and its parents. If version
// 1 has the memory controller, reads memory.limit_in_bytes and the other files of version 1. total
// == 0 means unknown. Tests pass other folders to simulate a system.
MemoryInfo memory_info(const std::filesystem::path &proc = "/proc",
                       const std::filesystem::path &cgroup = "/sys/fs/cgroup");

// Returns the folders of the process's cgroup v2 and of its parents, leaf first. The folders may
// not exist.
std::vector<std::filesystem::path>
memory_groups(const std::filesystem::path &proc = "/proc",
              const std::filesystem::path &cgroup = "/sys/fs/cgroup");

// Throws Error(resource) "WHAT: needs 4.1 GiB of memory, 1.0 GiB is available (system memory);
// CURE" if `bytes` is more than the available memory. Call it before memory is allocated. If the
// available memory is unknown, the function never throws.
void require_memory(uint64_t bytes, std::string_view what, std::string_view cure,
                    const MemoryInfo &info);

} // namespace keel
