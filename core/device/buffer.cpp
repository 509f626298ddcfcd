#include "device/buffer.hpp"

#include "device/device.hpp"

#include <algorithm>
#include <iterator>

namespace keel {

Buffer::Buffer(std::shared_ptr<Device> device, keel_buffer *handle, uint64_t size,
               keel_buffer_kind kind)
    : device_(std::move(device)), handle_(handle), size_(size), kind_(kind) {
    device_->live_[handle_] = this;
}

Buffer::~Buffer() {
    device_->live_.erase(handle_);
    device_->give_back(handle_, size_, kind_);
}

void Buffer::write(uint64_t offset, const void *src, uint64_t bytes) {
    if (offset > size_ || bytes > size_ - offset) {
        throw_error(ErrorKind::internal,
                    "a write of {} bytes at offset {} does not fit into a buffer of {} bytes",
                    bytes, offset, size_);
    }
    if (bytes == 0) return;
    device_->require_alive("buffer_write");
    device_->stream().queue_held_back();
    device_->check("buffer_write", [&] {
        return device_->table().buffer_write(device_->ctx(), handle_, offset, src, bytes);
    });
    device_->stream().write_queued(bytes);
}

void Buffer::read(uint64_t offset, void *dst, uint64_t bytes) const {
    if (offset > size_ || bytes > size_ - offset) {
        throw_error(ErrorKind::internal,
                    "a read of {} bytes at offset {} does not fit into a buffer of {} bytes", bytes,
                    offset, size_);
    }
    device_->stream().read(handle_, offset, dst, bytes);
}

void *Buffer::map() const {
    const keel_backend &table = device_->table();
    if (map_tried_ || table.buffer_map == nullptr) return mapped_;
    device_->require_alive("buffer_map");
    HostServices::drop_error();
    const keel_status status = table.buffer_map(device_->ctx(), handle_, &mapped_);
    if (status == KEEL_E_DEVICE_LOST) device_->fail(status, "buffer_map");
    if (status != KEEL_OK) {
        mapped_ = nullptr;
        take_message(); // drops the plugin's message, because the caller handles the refusal
    }
    map_tried_ = true;
    return mapped_;
}

void Buffer::commit(uint64_t offset, uint64_t bytes, bool on) {
    if (bytes == 0) return;
    const keel_backend &table = device_->table();
    if (kind_ != KEEL_BUFFER_RESERVE || table.buffer_commit == nullptr)
        throw_error(
            ErrorKind::internal,
            "commit() expects a buffer of reserved address space, found another kind of buffer");
    if (offset > size_ || bytes > size_ - offset)
        throw_error(ErrorKind::internal,
                    "commit() of {} bytes at offset {} does not fit into {} reserved bytes", bytes,
                    offset, size_);
    if (!on && device_->is_lost())
        return; // the memory was lost with the device; this call can be undoing an earlier failure,
                // so it must not throw again
    device_->require_alive("buffer_commit");
    device_->stream().queue_held_back();
    const keel_status status = device_->with_memory(
        [&] { return table.buffer_commit(device_->ctx(), handle_, offset, bytes, on ? 1u : 0u); });
    if (status != KEEL_OK) device_->fail(status, "buffer_commit");
    uint64_t begin = offset, end = offset + bytes;
    auto at = committed_.upper_bound(begin);
    if (at != committed_.begin() && std::prev(at)->second >= begin) --at;
    // all ranges that overlap or touch this one
    while (at != committed_.end() && at->first <= end) {
        const auto [b, e] = *at;
        at = committed_.erase(at);
        if (on) {
            begin = std::min(begin, b);
            end = std::max(end, e);
            continue;
        }
        if (b < begin) committed_.emplace(b, begin);
        if (e > end) at = std::next(committed_.emplace(end, e).first);
    }
    if (on) committed_.emplace(begin, end);
}

std::vector<std::pair<uint64_t, uint64_t>> Buffer::resident(uint64_t begin, uint64_t end) const {
    if (kind_ != KEEL_BUFFER_RESERVE) return {{begin, end}};
    std::vector<std::pair<uint64_t, uint64_t>> parts;
    for (const auto &[b, e] : committed_) {
        if (b < end && e > begin) parts.emplace_back(std::max(b, begin), std::min(e, end));
    }
    return parts;
}

keel_buffer *BufferPool::take(uint64_t size, keel_buffer_kind kind, uint64_t *actual) {
    auto &free = free_[kind];
    const auto found = free.lower_bound(size);
    if (found == free.end() || found->first - size > found->first / 4) return nullptr;
    keel_buffer *buffer = found->second;
    *actual = found->first;
    stats_.held_bytes -= found->first;
    ++stats_.reused;
    free.erase(found);
    return buffer;
}

void BufferPool::put(keel_buffer *buffer, uint64_t size, keel_buffer_kind kind) {
    free_[kind].emplace(size, buffer);
    stats_.held_bytes += size;
}

} // namespace keel
