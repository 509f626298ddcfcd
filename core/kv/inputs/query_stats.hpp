#pragma once

#include "kv/inputs/input_ops.hpp"
#include "kv/inputs/read_array.hpp"
#include "kv/store/state_io.hpp"

#include <memory>
#include <vector>

namespace keel {

// Sums and second moments of a sequence's queries before RoPE, for each layer and query head.
// Several queries of decoded tokens are added at a time. So the matrix of each head is not read and
// written for every token.
class QueryStats {
  public:
    // `op`: KEEL_OP_QUERY_STATS. `skip`: the number of queries at the start of the sequence that
    // the sums leave out. `executor` and `op` must outlive this object.
    QueryStats(Executor &executor, const KvShape &shape, PlannedOp *op, uint32_t skip,
               keel_buffer_kind placement);

    // Begins a step of n tokens. The first token of the step has the number `first`.
    void begin(int64_t first, int64_t n);
    // Returns the tensor to which the step writes its queries, f32 [n, heads, head_dim]. Returns
    // NULL if the sums leave out all of these queries.
    const Tensor *place(uint32_t layer);
    // Call it after the layer's queries were written. For a step of several tokens, adds the
    // queries to the sums at once.
    void written(uint32_t layer);

    // queries in the sums, and queries that wait to be added
    int64_t count() const { return count_; }
    // Adds the waiting queries to the sums. Call it before the sums are read.
    void add_waiting();
    const Tensor &sum() const { return sum_; }       // f32 [layers * heads, head_dim]
    const Tensor &second() const { return second_; } // f32 [layers * heads, head_dim, head_dim]

    uint64_t bytes() const {
        return held_bytes(sum_) + held_bytes(second_) + held_bytes(step_queries_) +
               held_bytes(waiting_rows_);
    }

    // Frees the queries of a prompt's last step. The sums already have these queries.
    void free_step() { step_queries_ = {}; }
    // Returns the largest value of bytes() if steps have `step_tokens` tokens. Allocates no memory.
    static uint64_t bytes(const KvShape &shape, int64_t step_tokens);

    // Returns the number of the latest tokens that can be removed again. `seen`: number of tokens
    // so far.
    int64_t revocable(int64_t seen) const;
    void drop(int64_t n, int64_t seen);
    void clear();
    void copy_from(QueryStats &other);
    void save(StateWriter &out);
    void load(StateReader &in, int64_t seen);

  private:
    void add(uint32_t layer, const Tensor &queries);
    void make();
    void make_room();

    Executor &executor_;
    KvShape shape_;
    PlannedOp *op_;
    int64_t skip_, count_ = 0, step_ = 0, left_out_ = 0;
    keel_buffer_kind placement_;
    Tensor sum_, second_;
    Tensor step_queries_; // f32 [step tokens, heads, head_dim], of one layer at a time
    Tensor place_;
    int64_t waiting_ = 0; // number of used rows of waiting_rows_
    Tensor waiting_rows_; // f32 [layers, stats_rows * heads * head_dim]; allocated by the first
                          // decode step
};

} // namespace keel
