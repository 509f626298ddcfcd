// The layout of attention's scratch memory, and the number of rows of a task.
#include "cpu/attention/job.hpp"

namespace keel_cpu {
namespace {

// Returns the number of rows of a tile. The tiles are as equal as possible. The number is a
// multiple of six, because gemm handles six rows at a time.
int64_t tile_rows(int64_t rows) {
    const int64_t tiles = tiles_of(rows);
    return tiles == 0 ? 0 : round_up(ceil_div(rows, tiles), 6);
}

// Returns the number of rows of a tile for products in bf16, if the slots are not split. The number
// is a multiple of kTileRows. So the same rows always share a block of kTileRows rows, for any
// number of workers. Therefore a row's result does not depend on the number of workers.
int64_t wide_rows(int64_t heads, int64_t rows, uint32_t threads) {
    const int64_t fair = ceil_div(heads * rows, threads * kTasksEach),
                  most = fair < kTileRows   ? kTileRows
                         : fair < kWideRows ? fair
                                            : kWideRows;
    return round_up(most, kTileRows);
}

int64_t line(int64_t floats) { // rounds up to whole cache lines of 16 floats
    return round_up(floats, 16);
}

int64_t kept_row_bytes(const AttentionSize &size) {
    return round_up(size.slots, kTileSlots) * (size.in_bf16 ? 2 : 4);
}

// Returns the number of rows of a task that keeps its softmax. `usual` is the number without
// scores. The kept softmax must fit the worker's cache. In f32 a row's result does not depend on
// other rows, so the number is also small enough to give several tasks.
int64_t keeping_rows(const AttentionSize &size, int64_t usual) {
    // The number of rows whose softmax is kept. In f32 a task keeps all its rows.
    const int64_t least = size.in_bf16 ? kTileRows : kKeptRows, rows = size.m * size.group,
                  kept = size.in_bf16 ? size.contributing * size.group : rows,
                  most_kept = kept < usual ? kept : usual;
    int64_t most = usual;
    if (most_kept * kept_row_bytes(size) > kKeptBytes)
        most = kKeptBytes / kept_row_bytes(size) / least * least;
    const int64_t fair = round_up(ceil_div(size.heads * rows, kWantedTasks), least);
    if (!size.in_bf16 && fair < most) most = fair;
    return most > least ? most : least < usual ? least : usual;
}

// Sets the layout of the memory for Scoring::several. The memory of a worker must also be large
// enough for all smaller sizes, whose tasks can have more rows.
void lay_out_sums(AttentionLayout &l, const AttentionSize &size) {
    const int64_t rows = size.m * size.group, row_bytes = kept_row_bytes(size);
    l.keep_step = size.in_bf16 ? size.bf16_step : rows < l.tile_rows ? rows : l.tile_rows;
    l.keep_tiles = ceil_div(size.slots, kTileSlots);
    const auto least_of = [](int64_t a, int64_t b) { return a < b ? a : b; };
    // `spare` is memory for the first and the last step, in which only some rows contribute.
    const int64_t counted = least_of(size.contributing * size.group, l.most_rows),
                  spare = size.in_bf16 ? 2 * size.bf16_step : 0,
                  most = (size.in_bf16 ? counted : least_of(rows, kTileRows)) + spare,
                  always = size.in_bf16 ? kTileRows + spare : kKeptRows,
                  held = kKeptBytes > (always - spare) * row_bytes ? kKeptBytes + spare * row_bytes
                                                                   : always * row_bytes;
    l.keep_floats = line(least_of(most * row_bytes, held) / 4);
    l.keep_stride = l.keep_floats + line(l.keep_floats * (size.in_bf16 ? 2 : 1) / kTileSlots);
    l.worker_stride += l.keep_stride;
    l.sum_stride = l.keep_tiles * kTileSlots;
    l.sums = l.total;
    l.turns = l.sums + size.sums * l.sum_stride;
    l.total = l.turns + line(size.heads);
}

} // namespace

AttentionLayout attention_layout(const AttentionSize &size) {
    const int64_t heads = size.heads, group = size.group, m = size.m;
    const int64_t dim = padded(size.head_dim), value = padded(size.v_dim),
                  wide_dim = dim > value ? dim : value;
    const int64_t rows = m * group, tiles = heads * tiles_of(rows);
    // The slots are split into parts only if there are few tiles. A call with a smaller m than
    // planned can have few tiles.
    const int64_t parts =
        heads / size.sequences < kWantedTasks ? size.sequences * 2 * kWantedTasks : 0;
    const int64_t part_rows = rows < kTileRows ? rows : kTileRows;
    const bool several = size.scoring == Scoring::several;
    AttentionLayout l = {};
    static_assert(kTileRows >= bf16_walk_tiles * bf16_rows);
    const bool wide =
        size.bf16_step != 0 && heads / size.sequences * tiles_of(rows) >= kWantedTasks;
    l.tile_rows = wide ? wide_rows(heads, rows, size.threads) : tile_rows(rows);
    l.most_rows = l.tile_rows > kTileRows ? l.tile_rows : kTileRows;
    if (several) l.tile_rows = keeping_rows(size, l.tile_rows);
    l.chunk = wide ? kChunkSlots : kTileSlots;
    l.part_stride = line(2 * kTileRows + part_rows * value);
    l.worker_stride =
        line(kTileRows * dim + dim * kTileSlots + kTileSlots * wide_dim + kTileRows * kTileSlots +
             l.most_rows * value + 2 * kTileSlots + 2 * l.most_rows) +
        line(((l.most_rows + kTileSlots + l.chunk) * bf16_padded(size.head_dim) + l.chunk * value +
              kTileRows * kTileSlots) /
             2);
    const int64_t tasks =
        // one more, so that smaller sizes fit too
        heads * (ceil_div(rows, several ? kKeptRows : l.tile_rows) + 1);
    const bool with_scores = size.scoring != Scoring::none;
    l.tasks = 0;
    l.merges = line(((tasks > tiles ? tasks : tiles) + parts) *
                    static_cast<int64_t>(sizeof(AttentionTask)) / 4);
    l.parts = l.merges + line((tiles + 1) * static_cast<int64_t>(sizeof(AttentionMerge)) / 4);
    l.queries = l.parts + parts * l.part_stride;
    l.factors =
        l.queries + (size.scoring == Scoring::logits ? heads * group * size.contributing * dim : 0);
    l.kept = l.factors + line(with_scores ? heads * group * size.contributing * 2 : 0);
    const int64_t kept_slots = size.scoring == Scoring::one ? size.slots : 0;
    l.kept_tiles = line(ceil_div(kept_slots, kTileSlots) * group);
    l.kept_stride = l.kept_tiles * kTileSlots;
    l.kept_max = l.kept + heads * l.kept_stride;
    l.total = l.kept_max + heads * l.kept_tiles;
    if (several) lay_out_sums(l, size);
    l.workers = l.total;
    l.total += size.threads * l.worker_stride;
    return l;
}

} // namespace keel_cpu
