// Part of KvCache, for layers with an attention window: frees the blocks to which no later query
// attends.
#include "kv/store/kv_cache.hpp"

#include "device/device.hpp"

#include <algorithm>

namespace keel {

void KvCache::hold_window(int64_t next) {
    const auto &positions = heads_.front().positions;
    const auto seen = std::upper_bound(positions.begin(), positions.end(), next - shape().window);
    const int64_t blocks = (seen - positions.begin()) / int64_t{shape().block_slots} - 1;
    if (shape().window == 0 || blocks < 1) return;
    for (uint32_t l = 0; l < shape().layers; ++l) {
        for (uint32_t h = 0; h < shape().kv_heads; ++h)
            drop_first_blocks(l, h, static_cast<size_t>(blocks));
    }
    write_positions(); // slot numbers have changed
    queue_books();
}

void KvCache::drop_first_blocks(uint32_t layer, uint32_t h, size_t n) {
    Head &own = head(layer, h);
    const std::vector<int32_t> dropped(own.blocks.begin(),
                                       own.blocks.begin() + static_cast<std::ptrdiff_t>(n));
    own.blocks.erase(own.blocks.begin(), own.blocks.begin() + static_cast<std::ptrdiff_t>(n));
    own.positions.erase(own.positions.begin(),
                        own.positions.begin() +
                            static_cast<std::ptrdiff_t>(n * shape().block_slots));
    const auto width = static_cast<size_t>(shape().blocks_per_head());
    const auto row = host_tables_.begin() +
                     static_cast<std::ptrdiff_t>((size_t{layer} * shape().kv_heads + h) * width);
    std::fill_n(row, width, -1);
    std::copy(own.blocks.begin(), own.blocks.end(), row);
    tables_dirty_ = true;
    for (const int32_t block : dropped) arena_->release(layer, block);
}

} // namespace keel
