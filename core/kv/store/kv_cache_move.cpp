// Part of KvCache: moves the content of a cache on another device to this cache. Lengths and
// positions are copied at once. Rows are copied layer by layer, so that the blocks of the other
// cache can be freed after each layer. The two caches can have different types and different
// numbers of slots per block.
#include "kv/store/kv_cache.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "device/device.hpp"
#include "numbers/convert.hpp"

#include <algorithm>
#include <numeric>

namespace keel {
namespace {

constexpr uint64_t most_run = uint64_t{16} << 20; // maximum bytes of one read or write

// The rows of a block, and their place in the layer's image. The image of a layer is a buffer with
// the rows of all heads, one head after the other.
struct Piece {
    int32_t block;
    uint64_t first, rows; // row numbers in the image
};

// Calls visit(pieces) for each run of adjacent blocks. One read or write can transfer a run.
template <typename Visit>
void for_each_run(std::vector<Piece> &pieces, uint64_t block_bytes, const Visit &visit) {
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece &a, const Piece &b) { return a.block < b.block; });
    const size_t most = std::max<size_t>(1, static_cast<size_t>(most_run / block_bytes));
    for (size_t i = 0; i < pieces.size();) {
        size_t end = i + 1;
        while (end < pieces.size() && end - i < most &&
               pieces[end].block == pieces[end - 1].block + 1)
            ++end;
        visit(std::span(pieces).subspan(i, end - i));
        i = end;
    }
}

// Converts elements to another type, a part at a time.
void convert_rows(keel_dtype from, const std::vector<std::byte> &src, keel_dtype to,
                  std::vector<std::byte> &dst, uint64_t rows, uint64_t row) {
    const uint64_t from_row = keel_dtype_row_bytes(from, row),
                   to_row = keel_dtype_row_bytes(to, row);
    constexpr uint64_t step = 1024;
    std::vector<float> floats(step * row);
    dst.resize(rows * to_row);
    for (uint64_t r = 0; r < rows; r += step) {
        const uint64_t n = std::min(step, rows - r);
        convert_to_f32(from, src.data() + r * from_row, floats.data(), n * row);
        convert_from_f32(to, floats.data(), dst.data() + r * to_row, n * row);
    }
}

std::vector<Piece> pieces_of(std::span<const std::vector<int32_t>> blocks,
                             std::span<const int64_t> lengths, uint64_t block_slots) {
    std::vector<Piece> pieces;
    uint64_t first = 0;
    for (size_t h = 0; h < blocks.size(); ++h) {
        auto left = static_cast<uint64_t>(lengths[h]);
        for (const int32_t block : blocks[h]) {
            const uint64_t n = std::min(left, block_slots);
            if (n > 0) pieces.push_back({block, first, n});
            first += n;
            left -= n;
        }
    }
    return pieces;
}

} // namespace

void KvCache::reserve_like(const KvCache &from) {
    const KvShape &s = shape();
    if (s.layers != from.shape().layers || s.kv_heads != from.shape().kv_heads ||
        s.head_dim != from.shape().head_dim)
        throw_error(ErrorKind::internal,
                    "a cache can take over only a cache of the same shape, found another shape");
    clear();
    uint64_t blocks = 0;
    for (const Head &h : from.heads_) {
        if (h.length() > s.max_slots)
            throw_error(ErrorKind::internal,
                        "a cache of {} slots does not fit into a cache of {} slots", h.length(),
                        s.max_slots);
        blocks += static_cast<uint64_t>(blocks_for(h.length()));
    }
    if (!arena_->can_take(blocks)) {
        throw_error(ErrorKind::resource,
                    "the cache needs {:.6g} MiB on the new backend, but the limit is {}; raise "
                    "kv.max_mib, or use a smaller kv.dtype",
                    static_cast<double>(blocks * s.block_bytes()) / bytes_per_mib, s.cap_text());
    }
    try {
        for (uint32_t l = 0; l < s.layers; ++l) {
            for (uint32_t h = 0; h < s.kv_heads; ++h) make_room(l, h, from.length(l, h));
        }
        for (size_t i = 0; i < heads_.size(); ++i)
            heads_[i].positions.assign(from.heads_[i].positions.begin(),
                                       from.heads_[i].positions.end());
        write_positions();
        queue_books();
    } catch (...) { // the device is out of memory or lost
        for (uint32_t l = 0; l < s.layers; ++l) {
            for (uint32_t h = 0; h < s.kv_heads; ++h) {
                head(l, h).positions.clear();
                abandon_blocks(l, h, 0);
            }
        }
        throw;
    }
}

uint64_t KvCache::take_rows(const KvCache &from, uint32_t layer) {
    const KvShape &mine = shape(), &theirs = from.shape();
    std::vector<std::vector<int32_t>> from_blocks, to_blocks;
    std::vector<int64_t> lengths;
    for (uint32_t h = 0; h < mine.kv_heads; ++h) {
        from_blocks.push_back(from.heads_[size_t{layer} * mine.kv_heads + h].blocks);
        to_blocks.push_back(head(layer, h).blocks);
        lengths.push_back(from.length(layer, h));
    }
    const auto rows =
        static_cast<uint64_t>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
    uint64_t moved = 0;
    std::vector<std::byte> image, converted, run;
    for (const bool keys : {true, false}) {
        const keel_dtype a = keys ? theirs.key_dtype : theirs.value_dtype,
                         b = keys ? mine.key_dtype : mine.value_dtype;
        const uint64_t a_row = keel_dtype_row_bytes(a, mine.head_dim),
                       b_row = keel_dtype_row_bytes(b, mine.head_dim);
        const uint64_t a_block = theirs.block_slots * a_row, b_block = mine.block_slots * b_row;
        const Tensor &source = keys ? from.arena_->keys(layer) : from.arena_->values(layer);
        const Tensor &target = keys ? arena_->keys(layer) : arena_->values(layer);
        image.resize(rows * a_row);
        std::vector<Piece> pieces = pieces_of(from_blocks, lengths, theirs.block_slots);
        for_each_run(pieces, a_block, [&](std::span<const Piece> some) {
            run.resize(some.size() * a_block);
            source.buffer()->read(source.offset() + static_cast<uint64_t>(some[0].block) * a_block,
                                  run.data(), run.size());
            for (size_t i = 0; i < some.size(); ++i)
                std::copy_n(run.data() + i * a_block, some[i].rows * a_row,
                            image.data() + some[i].first * a_row);
        });
        if (a != b) {
            convert_rows(a, image, b, converted, rows, mine.head_dim);
            image.swap(converted);
        }
        pieces = pieces_of(to_blocks, lengths, mine.block_slots);
        for_each_run(pieces, b_block, [&](std::span<const Piece> some) {
            run.assign(some.size() * b_block, std::byte{0});
            for (size_t i = 0; i < some.size(); ++i)
                std::copy_n(image.data() + some[i].first * b_row, some[i].rows * b_row,
                            run.data() + i * b_block);
            target.buffer()->write(target.offset() + static_cast<uint64_t>(some[0].block) * b_block,
                                   run.data(), run.size());
        });
        moved += rows * b_row;
    }
    return moved;
}

void KvCache::drop_rows(uint32_t layer) noexcept {
    for (uint32_t h = 0; h < shape().kv_heads; ++h) abandon_blocks(layer, h, 0);
}

} // namespace keel
