#include "ops/crossing.hpp"

#include "ops/executor.hpp"
#include "platform/memory.hpp"

#include <algorithm>

namespace keel {
namespace {

// up to this value, a copied region keeps the alignment of its source
constexpr uint64_t staged_align = 64;

} // namespace

Crossing::Crossing(std::shared_ptr<Device> from, std::shared_ptr<Device> to)
    : from_(std::move(from)), to_(std::move(to)) {
    may_share_ = from_->table().buffer_map != nullptr &&
                 (to_->device_info().flags & KEEL_DEVICE_IMPORTS_HOST) != 0;
    from_->add_watch(this);
}

Crossing::~Crossing() { from_->remove_watch(this); }

bool Crossing::shares(bool whole_pages) {
    if (!may_share_) return false;
    std::optional<bool> &known = shares_[whole_pages ? 1 : 0];
    if (!known) {
        const uint64_t bytes = 4 * page_size() + (whole_pages ? 0 : staged_align);
        known = import_all(*from_->allocate(bytes, KEEL_BUFFER_HOST_VISIBLE)) != nullptr;
    }
    return *known;
}

// Returns the memory of `buffer` as a buffer of the other device. Returns NULL if the device cannot
// import the memory.
BufferPtr Crossing::import_all(const Buffer &buffer) {
    void *host = buffer.map();
    const bool fits =
        host != nullptr && reinterpret_cast<uintptr_t>(host) % to_->info().buffer_align == 0;
    return fits ? to_->import_host(host, buffer.size()) : nullptr;
}

BufferPtr Crossing::import(keel_buffer *handle) {
    if (!may_share_) return nullptr;
    const auto found = imports_.find(handle);
    if (found != imports_.end()) return found->second;
    const Buffer *buffer = from_->find(handle);
    if (buffer == nullptr) return nullptr;
    BufferPtr imported = import_all(*buffer);
    imports_.emplace(handle, imported);
    return imported;
}

// Returns the regions that must be copied, because the other device cannot import their buffers.
// Overlapping tensors form one region.
std::vector<Crossing::Region> Crossing::regions_of(const OpCall &call) {
    std::vector<Region> regions;
    for (size_t i = 0; i < call.tensors().size(); ++i) {
        const OpCall::Operand &operand = call.tensors()[i];
        const keel_tensor &t = operand.tensor;
        const uint64_t extent = extent_bytes(t);
        if (extent == 0) continue;
        if (t.buffer == nullptr ? shares(extent % page_size() == 0) : import(t.buffer) != nullptr)
            continue;
        Region region{
            t.buffer, t.offset,     t.offset + extent, false, operand.access != OpCall::Access::in,
            {i},      operand.given};
        // The bytes between an output's rows must keep their content when the region is copied
        // back.
        region.fill = operand.access != OpCall::Access::out || !is_contiguous(t);
        const auto joins = [&](const Region &r) {
            if (r.source == nullptr || region.source == nullptr)
                return r.source == region.source && r.same == region.same;
            return r.source == region.source && r.begin < region.end && region.begin < r.end;
        };
        for (auto r = regions.begin(); r != regions.end();) {
            if (!joins(*r)) {
                ++r;
                continue;
            }
            region.fill =
                region.fill || r->fill || r->begin != region.begin || r->end != region.end;
            region.back = region.back || r->back;
            region.begin = std::min(region.begin, r->begin);
            region.end = std::max(region.end, r->end);
            region.tensors.insert(region.tensors.end(), r->tensors.begin(), r->tensors.end());
            r = regions.erase(r);
        }
        regions.push_back(std::move(region));
    }
    return regions;
}

uint64_t Crossing::bytes(keel_op op, const keel_op_args *args) {
    const OpCall call(op, args);
    uint64_t bytes = 0;
    for (const Region &r : regions_of(call)) {
        uint64_t held = r.end - r.begin;
        if (const Buffer *source = from_->find(r.source)) {
            held = 0;
            for (const auto &[begin, end] : source->resident(r.begin, r.end)) held += end - begin;
        }
        bytes += held * ((r.fill ? 1u : 0u) + (r.back ? 1u : 0u));
    }
    return bytes;
}

void Crossing::copy_over(const Region &r, Buffer &target, uint64_t pad) {
    const Buffer *source = from_->find(r.source);
    std::vector<std::byte> host;
    for (const auto &[begin, end] : source->resident(r.begin, r.end)) {
        host.resize(end - begin);
        source->read(begin, host.data(), host.size());
        target.write(pad + begin - r.begin, host.data(), host.size());
        copied_ += host.size();
    }
}

void Crossing::copy_back(const Region &r, const Buffer &staged, uint64_t pad) {
    Buffer *source = from_->find(r.source);
    std::vector<std::byte> host;
    for (const auto &[begin, end] : source->resident(r.begin, r.end)) {
        host.resize(end - begin);
        staged.read(pad + begin - r.begin, host.data(), host.size());
        source->write(begin, host.data(), host.size());
        copied_ += host.size();
    }
}

keel_status Crossing::run(keel_op op, const keel_op_args *args, const Weight *weight,
                          keel_plan *plan) {
    OpCall call(op, args);
    const std::span<OpCall::Operand> operands = call.tensors();
    for (const OpCall::Operand &operand : operands) {
        if (extent_bytes(operand.tensor) > 0 && from_->find(operand.tensor.buffer) == nullptr)
            throw_error(ErrorKind::internal, "{}: {} is in no buffer of backend {}", op_name(op),
                        operand.name, from_->plugin());
    }
    from_->stream().wait();
    const std::vector<Region> regions = regions_of(call);
    BufferPtr nothing; // a tensor without elements needs a buffer too
    for (size_t i = 0; i < operands.size(); ++i) {
        keel_tensor &tensor = operands[i].tensor;
        if (extent_bytes(tensor) == 0) {
            if (!nothing) nothing = to_->allocate(1);
            tensor.buffer = nothing->handle();
            tensor.offset = 0;
        } else if (const BufferPtr imported = import(tensor.buffer)) {
            tensor.buffer = imported->handle();
        }
    }
    std::vector<BufferPtr> staged;
    for (const Region &r : regions) {
        const uint64_t pad = r.begin % staged_align;
        staged.push_back(to_->allocate(pad + r.end - r.begin));
        if (r.fill) copy_over(r, *staged.back(), pad);
        for (const size_t i : r.tensors) {
            operands[i].tensor.buffer = staged.back()->handle();
            operands[i].tensor.offset += pad - r.begin;
        }
    }
    call.args()->plan = plan;
    set_weight(op, call.args(), weight, *to_);
    to_->require_alive(op_name(op));
    const keel_status status = call_op(to_->table(), op, to_->ctx(), call.args());
    if (status != KEEL_OK) return status;
    to_->stream().op_queued(op_name(op));
    to_->stream().wait();
    for (size_t i = 0; i < regions.size(); ++i) {
        if (regions[i].back) copy_back(regions[i], *staged[i], regions[i].begin % staged_align);
    }
    return KEEL_OK;
}

} // namespace keel
