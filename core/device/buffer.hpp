#pragma once

#include <keel/backend.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace keel {

class Device;

// A block of a device's memory. Several tensors can share it. When the last of these tensors is
// destroyed, the block returns to the device's pool. A Buffer keeps its device alive.
class Buffer {
  public:
    Buffer(std::shared_ptr<Device> device, keel_buffer *handle, uint64_t size,
           keel_buffer_kind kind);
    ~Buffer();
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;

    keel_buffer *handle() const { return handle_; }
    uint64_t size() const { return size_; } // usable bytes; at least as many as requested
    keel_buffer_kind kind() const { return kind_; }
    Device &device() const { return *device_; }

    // queues the write; src may be freed or changed after the call
    void write(uint64_t offset, const void *src, uint64_t bytes);
    void read(uint64_t offset, void *dst, uint64_t bytes) const; // waits for all queued work first
    // Returns the address of the buffer for the host, or NULL if the host cannot access this
    // buffer. Use it only after Stream::wait().
    void *map() const;
    // Only for kind RESERVE. If `on` is true, commits memory for a range. If `on` is false, gives
    // whole pages of the range back to the system. Runs in the order of the stream.
    void commit(uint64_t offset, uint64_t bytes, bool on);
    // Returns the parts [begin, end) of a range that have memory, in ascending order. For kind
    // RESERVE these are the committed parts. For other kinds it is the whole range.
    std::vector<std::pair<uint64_t, uint64_t>> resident(uint64_t begin, uint64_t end) const;

  private:
    std::shared_ptr<Device> device_;
    keel_buffer *handle_;
    uint64_t size_;
    keel_buffer_kind kind_;
    mutable void *mapped_ = nullptr;
    mutable bool map_tried_ = false;
    // RESERVE only: begin -> end of each committed range; the ranges do not overlap or touch
    std::map<uint64_t, uint64_t> committed_;
};
using BufferPtr = std::shared_ptr<Buffer>;

// Freed buffers of one device, kept for reuse because creating a buffer can cost a driver call. Not
// thread-safe, like the context.
class BufferPool {
  public:
    struct Stats {
        // held_bytes: size of the free buffers in the pool
        uint64_t created = 0, reused = 0, held_bytes = 0;
    };

    // Returns a free buffer of at least `size` bytes, or NULL. A buffer is not returned if more
    // than a quarter of it would be unused.
    keel_buffer *take(uint64_t size, keel_buffer_kind kind, uint64_t *actual);
    // Accepts only the kinds DEVICE and HOST_VISIBLE.
    void put(keel_buffer *, uint64_t size, keel_buffer_kind kind);
    // Empties the pool: passes each buffer to `destroy`.
    template <typename Destroy> void drain(const Destroy &destroy) {
        for (auto &free : free_) {
            for (const auto &[size, buffer] : free) destroy(buffer);
            free.clear();
        }
        stats_.held_bytes = 0;
    }
    Stats &stats() { return stats_; }

  private:
    // key: size in bytes; index: DEVICE, HOST_VISIBLE
    std::multimap<uint64_t, keel_buffer *> free_[2];
    Stats stats_;
};

} // namespace keel
