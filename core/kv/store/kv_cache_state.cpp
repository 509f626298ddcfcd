// Part of KvCache: saves and loads the content of a cache. For each layer and head, the content is
// the number of slots, the positions of their keys, the rows of K, and the rows of V. The rows have
// the types of the cache. Blocks are not saved; loading takes new blocks.
#include "kv/store/kv_cache.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "device/device.hpp"

#include <algorithm>

namespace keel {
namespace {

// Visits the rows of a head in one arena (K or V), block by block. `row_bytes` is the size of one
// slot's row.
struct RowRange {
    const Tensor &arena;
    uint64_t block_bytes, row_bytes;

    uint64_t offset(int32_t block) const {
        return arena.offset() + static_cast<uint64_t>(block) * block_bytes;
    }
};

} // namespace

void KvCache::save(StateWriter &out) const {
    const KvShape &s = shape();
    std::vector<std::byte> rows;
    const auto save_rows = [&](const RowRange &range, std::span<const int32_t> blocks,
                               int64_t length) {
        int64_t left = length;
        for (const int32_t block : blocks) {
            const auto n = static_cast<uint64_t>(std::min<int64_t>(left, s.block_slots));
            rows.resize(static_cast<size_t>(n * range.row_bytes));
            if (n > 0) range.arena.buffer()->read(range.offset(block), rows.data(), rows.size());
            out.write(rows.data(), rows.size());
            left -= static_cast<int64_t>(n);
        }
    };
    const uint64_t key_row = keel_dtype_row_bytes(s.key_dtype, s.head_dim);
    const uint64_t value_row = keel_dtype_row_bytes(s.value_dtype, s.head_dim);
    for (uint32_t l = 0; l < s.layers; ++l) {
        for (uint32_t h = 0; h < s.kv_heads; ++h) {
            const Head &own = heads_[size_t{l} * s.kv_heads + h];
            out.put(own.length());
            out.put_all<int32_t>(own.positions);
            save_rows({arena_->keys(l), s.key_block_bytes(), key_row}, own.blocks, own.length());
            save_rows({arena_->values(l), s.value_block_bytes(), value_row}, own.blocks,
                      own.length());
        }
    }
}

KvCache::SavedHead KvCache::read_head(StateReader &in, int64_t seen) const {
    const KvShape &s = shape();
    SavedHead saved;
    const int64_t length = in.get_count("slots of a head", 0, KvShape::most_slots);
    if (length > s.max_slots)
        in.fail("the session holds {} tokens, but this pipeline has room only for model.context = "
                "{}; raise model.context",
                length, s.max_slots);
    in.get_all<int32_t>(saved.positions, static_cast<uint64_t>(length), "positions");
    int32_t last = -1;
    for (const int32_t position : saved.positions) {
        if (position <= last || position >= seen)
            in.fail("positions of a head: expected rising numbers below {}, found {} after {}",
                    seen, position, last);
        last = position;
    }
    saved.keys = in.take(
        static_cast<uint64_t>(length) * keel_dtype_row_bytes(s.key_dtype, s.head_dim), "keys");
    saved.values = in.take(
        static_cast<uint64_t>(length) * keel_dtype_row_bytes(s.value_dtype, s.head_dim), "values");
    return saved;
}

void KvCache::load(StateReader &in, int64_t seen) {
    clear();
    // All saved values are checked before a block is taken.
    std::vector<SavedHead> saved;
    uint64_t blocks = 0;
    for (size_t i = 0; i < heads_.size(); ++i) {
        saved.push_back(read_head(in, seen));
        blocks += static_cast<uint64_t>(blocks_for(std::ssize(saved.back().positions)));
    }
    if (!arena_->can_take(blocks)) {
        in.fail("the session needs {:.6g} MiB of KV cache, but the limit is {}",
                static_cast<double>(blocks * shape().block_bytes()) / bytes_per_mib,
                shape().cap_text());
    }
    try {
        for (size_t i = 0; i < heads_.size(); ++i)
            fill_head(static_cast<uint32_t>(i / shape().kv_heads),
                      static_cast<uint32_t>(i % shape().kv_heads), saved[i]);
    } catch (...) { // the device is out of memory
        for (uint32_t l = 0; l < shape().layers; ++l) {
            for (uint32_t h = 0; h < shape().kv_heads; ++h) abandon_blocks(l, h, 0);
        }
        throw;
    }
    for (size_t i = 0; i < heads_.size(); ++i)
        heads_[i].positions.assign(saved[i].positions.begin(), saved[i].positions.end());
    write_positions();
    queue_books();
}

// Takes blocks for an empty head, and writes the saved rows to them.
void KvCache::fill_head(uint32_t l, uint32_t h, const SavedHead &saved) {
    const KvShape &s = shape();
    const int64_t length = std::ssize(saved.positions);
    make_room(l, h, length);
    const auto write_rows = [&](const RowRange &range, std::span<const std::byte> rows) {
        for (const int32_t block : head(l, h).blocks) {
            const size_t n = std::min<size_t>(rows.size(), s.block_slots * range.row_bytes);
            if (n > 0) range.arena.buffer()->write(range.offset(block), rows.data(), n);
            rows = rows.subspan(n);
        }
    };
    write_rows(
        {arena_->keys(l), s.key_block_bytes(), keel_dtype_row_bytes(s.key_dtype, s.head_dim)},
        saved.keys);
    write_rows(
        {arena_->values(l), s.value_block_bytes(), keel_dtype_row_bytes(s.value_dtype, s.head_dim)},
        saved.values);
}

} // namespace keel
