#pragma once

#include "conformance/scene.hpp"

#include <keel/ext/draft/attention_dense.h>

#include <functional>

namespace keel::conformance {

// Orders of the dimensions [batch, tokens, heads, dim] in memory.
enum class Order {
    plain,      // without gaps
    gaps,       // gaps after the rows of each dimension, and a first element that is not aligned
    head_major, // [batch, heads, tokens, dim]
    packed,     // tokens are three times as far apart, as in one tensor of q, k and v
    token_major // [tokens, batch, heads, dim]
};

// One case: the sizes, options and dtypes of a call.
struct DenseShape {
    int64_t batch = 1, rows = 9, keys = 9, heads = 2, kv_heads = 1, dim = 32, v_dim = 32;
    uint64_t features = 0;
    keel_dtype dtype = KEEL_DTYPE_F32;   // dtype of q, k, v, and d_out
    keel_dtype results = KEEL_DTYPE_F32; // dtype of out and of the gradients
    Order order = Order::plain;
    int64_t before = 3, after = 2; // the window before and after a query
    float dropout = 0.3F;
    bool spread_pairs = false; // true: bias and mask are the same for all batches and heads
    bool large = false;        // true: logits of about +-10,000, exact in f32
    bool dead_rows = false;    // true: all logits of every third query are -infinity
    // true: NaN in rows of q, k, v and d_out that the mask hides, or that KEEL_DENSE_CAUSAL can
    // hide
    bool hidden_nan = false;

    float scale() const;
};
std::string name_of(const DenseShape &s);

// The tensors of a case, and the calls on a side. A tensor is named by its index in the scene.
struct DenseScene {
    DenseScene(const DenseShape &shape, Rng &rng);
    // The next functions run a pass on the tensors of a stage. `change` can make the arguments
    // invalid before the call. If `longer` is true, the structs come from a newer peer, so they
    // have more bytes, with arbitrary content.
    using ChangeForward = std::function<void(keel_dense_attention &, keel_dense_outputs &)>;
    using ChangeBackward = std::function<void(keel_dense_attention &, keel_dense_gradients &)>;
    keel_status forward(const keel_dense &table, Stage &stage, bool longer,
                        const ChangeForward &change = nullptr) const;
    keel_status backward(const keel_dense &table, Stage &stage, bool longer,
                         const ChangeBackward &change = nullptr) const;

    DenseShape s;
    Scene scene;
    int q, k, v, sink = none, bias = none, mask = none, out, lse, d_out, d_q, d_k, d_v,
                 d_sink = none;

  private:
    keel_dense_attention attention(Stage &stage) const;
    void hide_nan();
    void kill_rows();
};

} // namespace keel::conformance
