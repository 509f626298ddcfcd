#include "kv/store/batch_view.hpp"

#include "device/device.hpp"

#include <algorithm>

namespace keel {
namespace {

// A tensor [seats * layers * kv_heads, ...] has the block tables, lengths or positions of all
// layers. Returns a layer's part of it, as [seats, kv_heads, ...].
keel_tensor by_seat(const Tensor &books, const KvShape &shape, uint32_t layer) {
    keel_tensor t = *books.c();
    const int64_t rows = int64_t{shape.layers} * shape.kv_heads;
    const int64_t row_bytes = books.rank() == 2 ? books.c()->stride[0] : int64_t{sizeof(int32_t)};
    if (books.rank() == 2) {
        t.shape[2] = t.shape[1];
        t.stride[2] = t.stride[1];
    }
    t.rank = books.rank() + 1;
    t.shape[1] = shape.kv_heads;
    t.stride[1] = row_bytes;
    t.shape[0] = books.dim(0) / rows;
    t.stride[0] = rows * row_bytes;
    t.offset += static_cast<uint64_t>(int64_t{layer} * shape.kv_heads * row_bytes);
    return t;
}

} // namespace

BatchView::BatchView(KvArena &arena, uint32_t most)
    : arena_(arena), seats_(Tensor::allocate(arena.executor().device(), KEEL_DTYPE_I32, {most},
                                             arena.placement())) {
    const KvShape &s = arena.shape();
    host_seats_.reserve(most);
    layers_.resize(arena.seats() == 0 ? 0 : s.layers);
    for (uint32_t i = 0; i < layers_.size(); ++i) {
        Layer &layer = layers_[i];
        layer.table = by_seat(arena.seat_tables(), s, i);
        layer.lengths = by_seat(arena.seat_lengths(), s, i);
        layer.positions = by_seat(arena.seat_positions(), s, i);
        layer.view.block_table = &layer.table;
        layer.view.lengths = &layer.lengths;
        layer.view.positions = &layer.positions;
        layer.view.block_slots = s.block_slots;
        layer.view.kv_heads = s.kv_heads;
        views_.push_back(&layer.view);
    }
}

std::span<const keel_batch_kv *const> BatchView::of(std::span<KvCache *const> caches) {
    host_seats_.clear();
    for (const KvCache *cache : caches) {
        if (&cache->arena() != &arena_ || cache->seat() < 0) return {};
        host_seats_.push_back(cache->seat());
    }
    seats_in_use_ = seats_.rows(0, std::ssize(caches));
    seats_in_use_.write(host_seats_.data());
    for (uint32_t i = 0; i < layers_.size(); ++i) {
        keel_batch_kv &view = layers_[i].view;
        view.k = arena_.keys(i).c();
        view.v = arena_.values(i).c();
        view.seats = seats_in_use_.c();
        view.max_length = 0;
        for (const KvCache *cache : caches)
            view.max_length = std::max(view.max_length, cache->max_length(i));
    }
    return views_;
}

BatchTemplate::BatchTemplate(const KvShape &s, uint32_t n) {
    const int64_t blocks = s.blocks_per_head(), slots = blocks * s.block_slots;
    k_ = Tensor::shape(s.key_dtype, {s.capacity_blocks(), s.block_slots, s.head_dim});
    v_ = Tensor::shape(s.value_dtype, {s.capacity_blocks(), s.block_slots, s.head_dim});
    const int64_t places = std::max(n, s.sequences);
    table_ = Tensor::shape(KEEL_DTYPE_I32, {places, s.kv_heads, blocks});
    lengths_ = Tensor::shape(KEEL_DTYPE_I32, {places, s.kv_heads});
    positions_ = Tensor::shape(KEEL_DTYPE_I32, {places, s.kv_heads, slots});
    seats_ = Tensor::shape(KEEL_DTYPE_I32, {n});
    view_.k = k_.c();
    view_.v = v_.c();
    view_.block_table = table_.c();
    view_.lengths = lengths_.c();
    view_.positions = positions_.c();
    view_.seats = seats_.c();
    view_.block_slots = s.block_slots;
    view_.kv_heads = s.kv_heads;
    view_.max_length = s.max_slots;
}

} // namespace keel
