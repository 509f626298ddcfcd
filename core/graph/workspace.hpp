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
    // With experts. Then gate_up and act are those of the shared expert, or empty.
    Tensor router;         // f32 [m, experts]
    Tensor chosen;         // i32 [m, used experts]
    Tensor chosen_weights; // f32 [m, used experts]
    Tensor expert_gate_up; // A [m, used experts * 2 * size of an expert]
    Tensor expert_act;     // A [m, used experts * size of an expert]
    // With a shared expert, which is "chosen" with the sigmoid of its logit as weight.
    Tensor shared_logit, shared_weight; // f32 [m, 1]
    Tensor shared_index;                // i32 [m, 1]
    Tensor logits;                      // f32 [logit_rows, vocab]
};

} // namespace keel
