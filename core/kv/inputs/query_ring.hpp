#pragma once

#include "kv/store/held_bytes.hpp"
#include "ops/executor.hpp"

#include <cstdint>
#include <vector>

namespace keel {

// The queries of the latest tokens, for each layer [rows, heads, head_dim]. The rows are a ring:
// the newest row replaces the oldest row. gather() copies the rows in the order of the tokens, for
// an op. If steps are recorded, each decode step writes its row to one fixed place. The row is
// copied to its place in the ring before the next step, or before it is read.
class QueryRing {
  public:
    // Planned copy ops (KEEL_OP_COPY). They must outlive the ring.
    struct Ops {
        PlannedOp *keep = nullptr;  // copies the last queries of a step of several tokens
        PlannedOp *order = nullptr; // copies rows of one layer in the order of the tokens
        PlannedOp *place = nullptr; // copies the row of a decode step to its place; NULL if steps
                                    // are not recorded
    };
    // `rows`: capacity of the ring.
    QueryRing(Executor &executor, const Ops &ops, keel_dtype dtype, uint32_t layers, int64_t rows,
              uint32_t heads, uint32_t head_dim, keel_buffer_kind placement);

    int64_t capacity() const { return rows_; }
    // The number of rows that the ring holds, at most its capacity.
    int64_t held() const { return held_; }
    // Begins a step of n tokens. From now on held() also counts the last min(n, capacity) tokens of
    // the step.
    void begin(int64_t n);
    // Returns the place to which a step of one token writes its row, [1, heads, head_dim].
    Tensor next(uint32_t layer) const;
    // Queues copies of the last queries of a step of several tokens, q [n, heads, head_dim].
    void keep(uint32_t layer, const Tensor &q);
    // Queues copies of the layer's last n rows into `out` [n, heads, head_dim]. n is at most
    // held(). Call place_last() first.
    void gather(uint32_t layer, int64_t n, const Tensor &out);
    void place_last(); // queues the copy of the last row to its place
    // Removes the queries of the last n tokens.
    void drop(int64_t n);
    void clear() {
        held_ = end_ = 0;
        waits_ = false;
    }
    // Copies the last rows of another ring. The other ring must have the same heads. It can have
    // another type and be on another device.
    void take_over(QueryRing &other);
    // Returns the rows as bytes, [layers, held, heads, head_dim].
    std::vector<std::byte> read();
    void write(const std::vector<std::byte> &rows, int64_t held);
    uint64_t bytes() const { return held_bytes(all_) + held_bytes(step_); }
    // Returns bytes() for these sizes. Allocates no memory. A row in the fixed place is not
    // counted.
    static uint64_t bytes(keel_dtype dtype, uint32_t layers, int64_t rows, uint64_t row_width) {
        return layers * static_cast<uint64_t>(rows) * keel_dtype_row_bytes(dtype, row_width);
    }
    uint64_t row_bytes() const { return row_bytes_; } // bytes of a row of one layer

  private:
    void make();
    // The last n rows are one or two runs of contiguous rows in the ring. Calls run(from, count,
    // done) for each run.
    template <typename Run> void for_runs(int64_t n, const Run &run) const;
    Tensor layer_rows(uint32_t layer, int64_t from, int64_t n) const;
    void copy(PlannedOp &op, const Tensor &from, const Tensor &to) const;

    Executor &executor_;
    Ops ops_;
    keel_dtype dtype_;
    uint32_t layers_, heads_, head_dim_;
    int64_t rows_, held_ = 0, end_ = 0; // end_: the row after the newest row, below rows_
    uint64_t row_bytes_;
    keel_buffer_kind placement_;
    Tensor all_;         // [layers, rows * heads * head_dim], made when first needed
    Tensor step_;        // [layers, heads * head_dim]: the row of a decode step; used only with
                         // Ops::place
    bool waits_ = false; // the last row is in step_
};

} // namespace keel
