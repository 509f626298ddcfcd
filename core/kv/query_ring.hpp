#pragma once

#include "device/executor.hpp"
#include "kv/held_bytes.hpp"

#include <cstdint>
#include <vector>

namespace keel {

// Rows of the last tokens, for each layer [rows, heads, head_dim]: always in order and without a gap, so that an op can take them as they
// lie. Twice the room that is wanted is used from front to end; when it is full the rows that still count move to the front, in one op.
class QueryRing {
  public:
    // `rows` that are wanted; `shift` moves rows (KEEL_OP_COPY), may be NULL if one row is wanted. It outlives this.
    QueryRing(Executor &executor, PlannedOp *shift, keel_dtype dtype, uint32_t layers, int64_t rows,
              uint32_t heads, uint32_t head_dim, keel_buffer_kind placement);

    int64_t capacity() const { return rows_; }
    // Rows of the last tokens that are there, at most the capacity.
    int64_t held() const { return held_; }
    // Makes room for the rows of n more tokens, min(n, capacity) of which are kept, and counts them as there.
    void begin(int64_t n);
    // The last n rows of a layer, [n, heads, head_dim]. n at most held().
    Tensor last(uint32_t layer, int64_t n) const;
    // The last n tokens were taken back.
    void drop(int64_t n);
    void clear() { held_ = end_ = 0; }
    // Takes what another ring of the same shape but for its capacity holds.
    void copy_from(const QueryRing &other);
    // Rows as bytes, [layers, held, heads, head_dim].
    std::vector<std::byte> read() const;
    void write(const std::vector<std::byte> &rows, int64_t held);
    uint64_t bytes() const { return held_bytes(all_); }
    uint64_t row_bytes() const { return row_bytes_; } // of one layer
    // Takes what a ring of the same shape on another device holds, whatever the type of its rows.
    void take_over(const QueryRing &other);

  private:
    void make();

    Executor &executor_;
    PlannedOp *shift_;
    keel_dtype dtype_;
    uint32_t layers_, heads_, head_dim_;
    int64_t rows_, held_ = 0, end_ = 0; // rows in use are end_ - held_ .. end_ - 1
    uint64_t row_bytes_;
    keel_buffer_kind placement_;
    Tensor all_; // [layers, 2 * rows * heads * head_dim], made when first needed
};

} // namespace keel
