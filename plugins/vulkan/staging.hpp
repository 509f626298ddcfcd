// Memory for writes and for large parameters: the host writes to it, and queued commands read it.
#pragma once

#include "vulkan/memory.hpp"

namespace keel_vulkan {

// A ring in memory that host and device share. It never grows. Its byte counts only increase.
class Staging {
  public:
    static constexpr uint64_t kBytes = 8u << 20;

    void open(Memory *memory) { memory_ = memory; }
    // Call this only when no queued command reads the ring.
    void close() noexcept { memory_->give_back(ring_); }
    // A part of n <= kBytes bytes. Its block is NULL if the ring is full.
    Range take(uint64_t n, uint64_t align);
    // All bytes taken so far. A submission stores this number.
    uint64_t taken() const { return taken_; }
    // Whether some of the bytes that were taken up to this count are still in use.
    bool holds(uint64_t taken) const { return taken > released_; }
    // The commands that read the bytes up to this count are done.
    void release(uint64_t taken) { released_ = taken; }

  private:
    Memory *memory_ = nullptr;
    Range ring_;
    uint64_t taken_ = 0, released_ = 0;
};

} // namespace keel_vulkan
