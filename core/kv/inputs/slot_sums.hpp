#pragma once

#include "kv/store/held_bytes.hpp"
#include "kv/store/kv_cache.hpp"

#include <vector>

namespace keel {

// A sum for each slot and KV head of all layers, in f32. Ops of the steps add to it. When the cache
// is compacted, the sums move together with the slots. The sum of a new slot is 0. The memory grows
// with the cache; fit() shrinks it.
class SlotSums {
  public:
    // Ops of the kinds KEEL_OP_ZERO and KEEL_OP_COPY, see input_ops.hpp. They must outlive the
    // sums.
    struct Ops {
        PlannedOp *clear = nullptr, *read = nullptr, *grow = nullptr;
    };
    SlotSums(Executor &executor, const KvShape &shape, const Ops &ops, keel_buffer_kind placement);

    // Makes room for the cache's slots and sets the sums of new slots to 0. Call it before a
    // compaction. Also call it in a step that adds to the sums: after KvCache::append and before
    // the step's ops.
    void begin(const KvCache &cache);
    // Returns the sums of a layer, f32 [kv_heads, slots]. Ops read and write this tensor.
    // KvCache::compact takes it as a side array and moves the sums together with the slots. The
    // tensor is valid until begin() or fit().
    const Tensor &layer(uint32_t layer) const { return layers_[layer]; }
    // Call it after a compaction or truncate(): sums after the slots in use must be zeroed before
    // these slots are used again.
    void shrunk(const KvCache &cache);
    // Frees memory that the cache's slots do not need.
    void fit(const KvCache &cache);
    // Queues a copy of rows into `out` [rows, stride], beginning with row `first`.
    void copy_to(int64_t first, const Tensor &out) const;

    uint64_t bytes() const { return held_bytes(all_) + held_bytes(clean_); }
    // Returns the bytes of the sums for a cache of `slots` slots per head. Allocates no memory.
    static uint64_t bytes(const KvShape &shape, int64_t slots) {
        return uint64_t{shape.layers} * shape.kv_heads *
               static_cast<uint64_t>(capacity_for(shape, slots)) * sizeof(float);
    }

    // Writes the sums of the slots in use.
    void save(StateWriter &out, const KvCache &cache) const;
    void load(StateReader &in, const KvCache &cache);
    void copy_from(const SlotSums &other, const KvCache &cache);
    void clear();

  private:
    // Returns the number of slots for which a row has room if the cache has this length. It is at
    // least the max_length in the views of recorded steps (LastingViews), which is rounded up.
    static int64_t capacity_for(const KvShape &shape, int64_t length);
    void resize(int64_t slots);
    std::vector<float> read_row(size_t row, int64_t n) const;
    void write_row(size_t row, const std::vector<float> &values);
    void zero(int64_t row, int64_t rows, int64_t from, int64_t to);

    Executor &executor_;
    KvShape shape_;
    Ops ops_;
    keel_buffer_kind placement_;
    Tensor all_; // [layers * kv_heads, slots]; empty until the first slot
    std::vector<Tensor> layers_;
    // [layers * kv_heads]: the slots from the row's length up to this slot hold zeros
    std::vector<int64_t> clean_;
};

} // namespace keel
