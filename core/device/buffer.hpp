#pragma once

#include <keel/backend.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace keel {

class Device;

// A block of a device's memory. Shared by the tensors that lie in it; the last one gives it back to
// the device's pool. Keeps its device alive.
class Buffer {
  public:
    Buffer(std::shared_ptr<Device> device, keel_buffer *handle, uint64_t size,
           keel_buffer_kind kind);
    ~Buffer();
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;

    keel_buffer *handle() const { return handle_; }
    uint64_t size() const { return size_; } // bytes that may be used; at least what was asked for
    keel_buffer_kind kind() const { return kind_; }
    Device &device() const { return *device_; }

    void write(uint64_t offset, const void *src, uint64_t bytes); // queued; src is free on return
    void read(uint64_t offset, void *dst, uint64_t bytes) const;  // waits for all queued work
    // The host's pointer, NULL where the backend or the kind has none. Touch it only after
    // Stream::wait().
    void *map() const;
    // RESERVE only: commits memory for a range, or returns whole pages of it to the system. Ordered
    // in the stream.
    void commit(uint64_t offset, uint64_t bytes, bool on);
    // The parts [begin, end) of a range that hold memory, in order: all of it, but for RESERVE what
    // was committed.
    std::vector<std::pair<uint64_t, uint64_t>> resident(uint64_t begin, uint64_t end) const;

  private:
    std::shared_ptr<Device> device_;
    keel_buffer *handle_;
    uint64_t size_;
    keel_buffer_kind kind_;
    mutable void *mapped_ = nullptr;
    mutable bool map_tried_ = false;
    std::map<uint64_t, uint64_t> committed_; // RESERVE only: begin -> end, apart and not touching
};
using BufferPtr = std::shared_ptr<Buffer>;

// Freed buffers of one device, kept to be used again: making one can cost a driver call. Not
// thread-safe, like the context.
class BufferPool {
  public:
    struct Stats {
        uint64_t created = 0, reused = 0, held_bytes = 0; // held: free and kept
    };

    // A free buffer of at least `size` that wastes at most a quarter of itself, or NULL.
    keel_buffer *take(uint64_t size, keel_buffer_kind kind, uint64_t *actual);
    void put(keel_buffer *, uint64_t size, keel_buffer_kind kind); // DEVICE and HOST_VISIBLE only
    // Hands all of them out, for destruction.
    template <typename Destroy> void drain(const Destroy &destroy) {
        for (auto &free : free_) {
            for (const auto &[size, buffer] : free) destroy(buffer);
            free.clear();
        }
        stats_.held_bytes = 0;
    }
    Stats &stats() { return stats_; }

  private:
    std::multimap<uint64_t, keel_buffer *> free_[2]; // by size; [DEVICE], [HOST_VISIBLE]
    Stats stats_;
};

} // namespace keel
