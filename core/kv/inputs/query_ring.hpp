#pragma once

#include "kv/store/held_bytes.hpp"
#include "ops/executor.hpp"

#include <cstdint>
#include <vector>

namespace keel {

// Rows of the last tokens, for each layer [rows, heads, head_dim], in order and contiguous, so that
// an op can use them directly. The memory has twice the needed rows and is filled from front to
// end. When it is full, one op moves the rows that are still needed to the front. If steps are
// recorded, each decode step writes its row to the same fixed place. The row is copied to its own
// place before the next step or before it is read.
class QueryRing {
  public:
    // `rows` that are wanted; `shift` moves rows (KEEL_OP_COPY), may be NULL if one row is wanted;
    // `place` brings a decode step's row to its own place, NULL: it is written there. Both outlive
    // this.
    QueryRing(Executor &executor, PlannedOp *shift, PlannedOp *place, keel_dtype dtype,
              uint32_t layers, int64_t rows, uint32_t heads, uint32_t head_dim,
              keel_buffer_kind placement);

    int64_t capacity() const { return rows_; }
    // Rows of the last tokens that are there, at most the capacity.
    int64_t held() const { return held_; }
    // Makes room for the rows of n more tokens, min(n, capacity) of which are kept, and counts them
    // as there.
    void begin(int64_t n);
    // Where a step of one token writes its row, [1, heads, head_dim].
    Tensor next(uint32_t layer) const;
    // The last n rows of a layer, [n, heads, head_dim]. n at most held(). Behind begin(1) after
    // place_last() alone.
    Tensor last(uint32_t layer, int64_t n) const;
    void place_last(); // queues what brings the last row to its place
    // The last n tokens were taken back.
    void drop(int64_t n);
    void clear() {
        held_ = end_ = 0;
        waits_ = false;
    }
    // Takes what another ring of the same shape but for its capacity holds.
    void copy_from(QueryRing &other);
    // Rows as bytes, [layers, held, heads, head_dim].
    std::vector<std::byte> read();
    void write(const std::vector<std::byte> &rows, int64_t held);
    uint64_t bytes() const { return held_bytes(all_) + held_bytes(step_); }
    // The value of bytes() for given sizes; needs no allocated memory. A row in the fixed place is
    // not counted.
    static uint64_t bytes(keel_dtype dtype, uint32_t layers, int64_t rows, uint64_t row_width) {
        return 2 * layers * static_cast<uint64_t>(rows) * keel_dtype_row_bytes(dtype, row_width);
    }
    uint64_t row_bytes() const { return row_bytes_; } // of one layer
    // Takes what a ring of the same shape on another device holds, whatever the type of its rows.
    void take_over(QueryRing &other);

  private:
    void make();

    Executor &executor_;
    PlannedOp *shift_, *place_;
    keel_dtype dtype_;
    uint32_t layers_, heads_, head_dim_;
    int64_t rows_, held_ = 0, end_ = 0; // rows in use are end_ - held_ .. end_ - 1
    uint64_t row_bytes_;
    keel_buffer_kind placement_;
    Tensor all_;         // [layers, 2 * rows * heads * head_dim], made when first needed
    Tensor step_;        // [layers, heads * head_dim]: a decode step's; only with place_
    bool waits_ = false; // the last row is in step_
};

} // namespace keel
