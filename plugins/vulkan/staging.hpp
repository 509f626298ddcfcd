// Staging memory for writes and for large parameters. The host writes to it, and queued commands
// read it.
#pragma once

#include "vulkan/memory.hpp"

namespace keel_vulkan {

// A ring in memory that host and device share. The ring never grows. Its byte counts only increase.
class Staging {
  public:
    static constexpr uint64_t kBytes = 8u << 20;

    void open(Memory *memory) { memory_ = memory; }
    // Must be called only when no queued command reads the ring.
    void close() noexcept { memory_->give_back(ring_); }
    // Returns a part of n <= kBytes bytes. The block of the result is NULL if the ring is full.
    Range take(uint64_t n, uint64_t align);
    // Number of all bytes that were taken so far. A submission stores this number.
    uint64_t taken() const { return taken_; }
    // Returns true if some of the first `taken` bytes are still in use.
    bool holds(uint64_t taken) const { return taken > released_; }
    // Frees the first `taken` bytes. The commands that read them must be done.
    void release(uint64_t taken) { released_ = taken; }

  private:
    Memory *memory_ = nullptr;
    Range ring_;
    uint64_t taken_ = 0, released_ = 0;
};

} // namespace keel_vulkan
