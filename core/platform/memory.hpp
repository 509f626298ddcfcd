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

// Bytes of a page of memory, a power of two.
uint64_t page_size() noexcept;

// A block of memory that begins on a page boundary (large blocks: on a huge page, which the system
// is asked to use). Content is not initialized. Movable, not copyable.
class PageBuffer {
  public:
    PageBuffer() = default;
    // Throws Error(resource) that names `what` and the size if the system refuses. 0 bytes give an
    // empty buffer.
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

// Memory of this process that is in RAM, now and at its highest; 0 where the system does not tell.
uint64_t resident_bytes() noexcept;
uint64_t peak_resident_bytes() noexcept;

struct MemoryInfo {
    uint64_t total =
        0; // bytes that this process could ever use: RAM, or the control group's limit if lower
    uint64_t available =
        0; // bytes that it can take now without swapping or being killed; file cache counts as free
    std::string limited_by; // "system memory", or the control group whose limit is the tightest
};

// What the system offers now. Linux: MemAvailable of /proc/meminfo and memory.max, memory.high and
// memory.current of the process's cgroup v2 and its parents, or memory.limit_in_bytes and so on
// where version 1 has the memory. total == 0 means unknown. The arguments let tests give a made-up
// system.
MemoryInfo memory_info(const std::filesystem::path &proc = "/proc",
                       const std::filesystem::path &cgroup = "/sys/fs/cgroup");

// The folders of the process's cgroup v2 and its parents, leaf first; they need not exist.
std::vector<std::filesystem::path>
memory_groups(const std::filesystem::path &proc = "/proc",
              const std::filesystem::path &cgroup = "/sys/fs/cgroup");

// Throws Error(resource) "WHAT: needs 4.1 GiB of memory, 1.0 GiB is available (system memory);
// CURE" if `bytes` is more than is available. To be asked before anything is allocated. Unknown
// memory refuses nothing.
void require_memory(uint64_t bytes, std::string_view what, std::string_view cure,
                    const MemoryInfo &info);

} // namespace keel
