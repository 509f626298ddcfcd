#pragma once

#include "device/tensor.hpp"
#include "model/config.hpp"

namespace keel {

// The tensors that a graph's ops work on. They are made once, so that a step allocates no memory.
class Workspace {
  public:
    // Shapes without memory, for planning. logit_rows 0: the graph has no output projection.
    Workspace(const ModelConfig &config, keel_dtype activation, int64_t tokens, int64_t logit_rows);
    void allocate(Device &device, keel_buffer_kind kind);
    uint64_t bytes() const;

    // m is the number of tokens, A the activation dtype.
    Tensor ids;       // i32 [m]
    Tensor positions; // i32 [m]
    Tensor x;         // f32 [m, hidden]: the residual stream
    Tensor h;         // A [m, hidden]: normalized x; with post_norms also the result of attention
                      // or feed-forward
    Tensor qkv;       // A [m, q_size + 2 * kv_size]
    Tensor attention; // A [m, q_size]
    Tensor gate_up;   // A [m, 2 * intermediate]
    Tensor act;       // A [m, intermediate]
    Tensor logits;    // f32 [logit_rows, vocab]
};

} // namespace keel
