#include "device/crossing.hpp"

#include "device/executor.hpp"

#include <vector>

namespace keel {

Crossing::Crossing(std::shared_ptr<Device> from, std::shared_ptr<Device> to)
    : from_(std::move(from)), to_(std::move(to)) {
    shares_ =
        from_->table().buffer_map != nullptr && (to_->device_info().flags & KEEL_DEVICE_IMPORTS_HOST) != 0;
}

uint64_t Crossing::bytes(keel_op op, const keel_op_args *args) {
    ArgsCopy copy(op, args);
    uint64_t bytes = 0;
    for (const ArgsCopy::Slot &slot : copy.tensors()) {
        const uint64_t extent = extent_bytes(**slot.tensor);
        bytes += slot.role == ArgsCopy::Role::in_out ? 2 * extent : extent;
    }
    return bytes;
}

// The same bytes as a buffer of the other device, or NULL where that cannot be.
BufferPtr Crossing::import(keel_buffer *handle) {
    const Buffer *buffer = shares_ ? from_->find(handle) : nullptr;
    void *host = buffer != nullptr ? buffer->map() : nullptr;
    if (host == nullptr || reinterpret_cast<uintptr_t>(host) % to_->info().buffer_align != 0) return nullptr;
    const auto found = imports_.find(handle);
    if (found != imports_.end() && found->second.host == host && found->second.size == buffer->size())
        return found->second.buffer;
    BufferPtr imported = to_->import_host(host, buffer->size());
    imports_[handle] = {host, buffer->size(), imported};
    return imported;
}

keel_status Crossing::run(keel_op op, const keel_op_args *args, const Weight *weight, keel_plan *plan) {
    struct Staged {
        const keel_tensor *original; // on the first device
        BufferPtr buffer;            // on the second
        ArgsCopy::Role role;
    };
    ArgsCopy copy(op, args);
    copy.args()->plan = plan;
    set_weight(op, copy.args(), weight, *to_);
    std::vector<keel_tensor> moved(copy.tensors().size());
    std::vector<Staged> staged;
    from_->stream().wait();
    for (size_t i = 0; i < moved.size(); ++i) {
        const ArgsCopy::Slot &slot = copy.tensors()[i];
        const keel_tensor *original = *slot.tensor;
        moved[i] = *original;
        *slot.tensor = &moved[i];
        if (BufferPtr imported = import(original->buffer)) {
            moved[i].buffer = imported->handle();
            continue;
        }
        const uint64_t bytes = extent_bytes(*original);
        BufferPtr buffer = to_->allocate(bytes);
        moved[i].buffer = buffer->handle();
        moved[i].offset = 0;
        // An output with gaps between its rows is copied over too, so that what lies in the gaps survives the way back.
        if (slot.role != ArgsCopy::Role::out || !is_contiguous(*original)) {
            std::vector<std::byte> host(bytes);
            from_->stream().read(original->buffer, original->offset, host.data(), bytes);
            buffer->write(0, host.data(), bytes);
            copied_ += bytes;
        }
        staged.push_back({original, std::move(buffer), slot.role});
    }
    const keel_status status = call_op(to_->table(), op, to_->ctx(), copy.args());
    if (status != KEEL_OK) return status;
    to_->stream().op_queued(op_name(op));
    to_->stream().wait();
    for (const Staged &s : staged) {
        if (s.role == ArgsCopy::Role::in) continue;
        const uint64_t bytes = extent_bytes(*s.original);
        std::vector<std::byte> host(bytes);
        s.buffer->read(0, host.data(), bytes);
        if (Buffer *target = from_->find(s.original->buffer))
            target->write(s.original->offset, host.data(), bytes);
        copied_ += bytes;
    }
    return KEEL_OK;
}

} // namespace keel
