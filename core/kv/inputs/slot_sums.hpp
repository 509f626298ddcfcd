#pragma once

#include "kv/store/held_bytes.hpp"
#include "kv/store/kv_cache.hpp"

#include <vector>

namespace keel {

// One f32 per slot and KV head of all layers, summed up by the ops of steps; moves along when the
// cache is compacted. New slots begin at 0.
class SlotSums {
  public:
    // `clear` zeroes, `copy` copies (input_ops.hpp); they outlive this.
    SlotSums(Executor &executor, const KvShape &shape, PlannedOp *clear, PlannedOp *copy,
             keel_buffer_kind placement);

    // After KvCache::append, before the step's ops: zeroes what new slots held.
    void begin(const KvCache &cache);
    // f32 [kv_heads, slots]: for ops, and a side of KvCache::compact.
    const Tensor &layer(uint32_t layer) const { return layers_[layer]; }
    // Call it after a compaction or truncate(): sums after the slots in use must be zeroed before
    // these slots are used again.
    void shrunk(const KvCache &cache);
    // Queues a copy of the first `layers` layers' sums into `out` [layers * kv_heads, stride].
    void copy_to(const Tensor &out) const;

    uint64_t bytes() const { return held_bytes(all_) + held_bytes(clean_); }
    // Bytes of the sums for a cache of `slots` slots per head. Needs no allocated memory.
    static uint64_t bytes(const KvShape &shape, uint64_t slots) {
        return uint64_t{shape.layers} * shape.kv_heads * slots * sizeof(float);
    }

    void save(StateWriter &out, const KvCache &cache) const;
    void load(StateReader &in, const KvCache &cache);
    void copy_from(const SlotSums &other, const KvCache &cache);
    void clear();

  private:
    std::vector<float> read_row(size_t row, int64_t n) const;
    void write_row(size_t row, const std::vector<float> &values);
    void zero(int64_t row, int64_t rows, int64_t from, int64_t to);

    Executor &executor_;
    PlannedOp *clear_, *copy_;
    Tensor all_; // [layers * kv_heads, slots]
    std::vector<Tensor> layers_;
    std::vector<int64_t> clean_; // [layers * kv_heads]: slots from the length to here hold zeros
};

} // namespace keel
