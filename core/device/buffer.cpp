#include "device/buffer.hpp"

#include "device/device.hpp"

namespace keel {

Buffer::Buffer(std::shared_ptr<Device> device, keel_buffer *handle, uint64_t size, keel_buffer_kind kind)
    : device_(std::move(device)), handle_(handle), size_(size), kind_(kind) {
    device_->live_[handle_] = this;
}

Buffer::~Buffer() {
    device_->live_.erase(handle_);
    device_->give_back(handle_, size_, kind_);
}

void Buffer::write(uint64_t offset, const void *src, uint64_t bytes) {
    if (bytes == 0) return;
    if (offset > size_ || bytes > size_ - offset) {
        throw_error(ErrorKind::internal, "a write of {} bytes at {} ends beyond a buffer of {}", bytes,
                    offset, size_);
    }
    device_->check(device_->table().buffer_write(device_->ctx(), handle_, offset, src, bytes),
                   "buffer_write");
    device_->stream().write_queued(bytes);
}

void Buffer::read(uint64_t offset, void *dst, uint64_t bytes) const {
    if (offset > size_ || bytes > size_ - offset) {
        throw_error(ErrorKind::internal, "a read of {} bytes at {} ends beyond a buffer of {}", bytes, offset,
                    size_);
    }
    device_->stream().read(handle_, offset, dst, bytes);
}

void *Buffer::map() const {
    if (!map_tried_) {
        map_tried_ = true;
        const keel_backend &table = device_->table();
        if (table.buffer_map != nullptr && table.buffer_map(device_->ctx(), handle_, &mapped_) != KEEL_OK)
            mapped_ = nullptr;
        take_message(); // a refusal is an answer here, not an error
    }
    return mapped_;
}

void Buffer::commit(uint64_t offset, uint64_t bytes, bool on) {
    if (bytes == 0) return;
    const keel_backend &table = device_->table();
    if (kind_ != KEEL_BUFFER_RESERVE || table.buffer_commit == nullptr) {
        throw_error(ErrorKind::internal, "commit on a buffer that is not reserved address space");
    }
    device_->check(table.buffer_commit(device_->ctx(), handle_, offset, bytes, on ? 1u : 0u),
                   "buffer_commit");
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

std::vector<keel_buffer *> BufferPool::drain() {
    std::vector<keel_buffer *> all;
    for (auto &free : free_) {
        for (const auto &[size, buffer] : free)
            all.push_back(buffer);
        free.clear();
    }
    stats_.held_bytes = 0;
    return all;
}

} // namespace keel
